"""Carts and their items as messages of `contracts/rota/v1/carts.proto`."""

from __future__ import annotations

import json
from datetime import timedelta

from google.protobuf.duration_pb2 import Duration

from rota.contracts import carts_pb2 as pb
from rota.domain.carts.definition import Between, Failures
from rota.operations.carts import CartPlan, CartView, Gate
from rota.ports.carts import Cart, FailureGroup, Item
from rota.server.gateway.rpc.messages import timestamp


def cart_message(cart: Cart) -> pb.Cart:
    document, rules = cart.document, cart.rules
    return pb.Cart(
        id=cart.id,
        project=cart.project,
        name=cart.name,
        state=pb.CartState.Value(f"CART_STATE_{cart.state}"),
        reason=cart.reason,
        version=cart.version,
        job=document.get("job", ""),
        order=rules.order,
        group_size=map(str, rules.group_sizes),
        max_parallel=rules.max_parallel,
        failures=_failures(rules.failures),
        between=_between(rules.between),
        calendars=rules.calendars,
        items=cart.items,
        pending=cart.pending,
        open=cart.open,
        completed=cart.completed,
        failed=cart.failed,
        cancelled=cart.cancelled,
        skipped=cart.skipped,
        wave=cart.wave,
        created_by=cart.created_by,
        created_at=timestamp(cart.created_at),
        starts_at=timestamp(cart.starts_at),
        started_at=timestamp(cart.started_at),
        ended_at=timestamp(cart.ended_at),
        description=document.get("description", ""),
        labels=document.get("labels", {}),
        rollback=document.get("rollback", ""),
        priority=document.get("priority"),
    )


def view_message(view: CartView) -> pb.GetCartResponse:
    return pb.GetCartResponse(
        cart=cart_message(view.cart),
        limit=view.limit,
        failures_in_scope=view.failures,
        breached=view.is_breached,
        place=view.place,
        eta=timestamp(view.eta),
        why=view.why,
        gate=None if view.gate is None else _gate(view.gate),
        failure_groups=map(_group, view.failure_groups),
    )


def plan_message(plan: CartPlan) -> pb.PlanCartResponse:
    return pb.PlanCartResponse(
        name=plan.name,
        items=plan.items,
        waves=plan.waves,
        wave_count=plan.wave_count,
        limit=plan.limit,
        eta=None if plan.eta is None else _duration(plan.eta),
        unrunnable=plan.unrunnable,
    )


def item_message(item: Item) -> pb.Item:
    return pb.Item(
        number=item.number,
        key=item.key,
        wave=item.wave,
        job=item.job,
        job_version=item.job_version,
        inputs_json="" if item.inputs is None else json.dumps(dict(item.inputs)),
        state=pb.ItemState.Value(f"ITEM_STATE_{item.state}"),
        run=item.run or "",
        run_state=item.run_state or "",
        runs=item.runs,
        cause=item.cause,
        message=item.message,
    )


def _failures(failures: Failures) -> pb.CartFailures:
    return pb.CartFailures(
        allow=str(failures.allow), of=failures.scope, then=failures.then, strict=failures.strict
    )


def _between(between: Between) -> pb.CartBetween:
    return pb.CartBetween(
        wait=_duration(between.wait), check=between.check, approve=between.approve
    )


def _gate(gate: Gate) -> pb.CartGate:
    return pb.CartGate(
        waits_for=gate.waits_for,
        until=timestamp(gate.until),
        check_run=gate.check_run or "",
        approve_role=gate.approve_role or "",
        wave=gate.wave or 0,
    )


def _group(group: FailureGroup) -> pb.FailureGroup:
    return pb.FailureGroup(
        cause=group.cause,
        count=group.count,
        key=group.key,
        run=group.run or "",
        message=group.message,
    )


def _duration(span: timedelta) -> Duration:
    message = Duration()
    message.FromTimedelta(span)
    return message
