"""`rota.v1.Carts`: ordered batches of runs, over the same operations as REST."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import grpc

from rota.contracts import carts_pb2 as pb
from rota.contracts.carts_pb2_grpc import CartsServicer, add_CartsServicer_to_server
from rota.domain.carts.commands import Approver
from rota.domain.carts.definition import CartItem
from rota.operations import cart_changes, carts
from rota.operations.cart_changes import cause_meant
from rota.operations.carts import view
from rota.operations.engine import Engine
from rota.operations.tokens import Caller
from rota.ports.carts import (
    ApproveCart,
    CancelCart,
    Cart,
    Command,
    Commanded,
    PauseCart,
    ResumeCart,
)
from rota.server.gateway.auth import CANCELS, READS, TRIGGERS, TrustedTokens
from rota.server.gateway.carts import cart_cursor, cart_query, cells_answer, item_cursor, item_query
from rota.server.gateway.filters import creator_meant, parse_cart_filter
from rota.server.gateway.parameters import GatewaySettings, looking_back, require_match
from rota.server.gateway.parsing import ParsingPool
from rota.server.gateway.proxies import TrustedProxies
from rota.server.gateway.rpc import messages
from rota.server.gateway.rpc.messages import cart_message, item_message, plan_message, view_message
from rota.server.gateway.rpc.server import check_declared, needs

_MAX_FILTER = 2_000


class CartsService(CartsServicer):
    """Service with all calls of `contracts/rota/v1/carts.proto`."""

    def __init__(
        self,
        engine: Engine,
        settings: GatewaySettings,
        tokens: TrustedTokens,
        parsing: ParsingPool,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self.tokens = tokens
        self.proxies = TrustedProxies(settings.trusted_proxies)
        self._parsing = parsing

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the service on a server that has not been started yet."""
        check_declared(self, pb.DESCRIPTOR.services_by_name["Carts"])
        add_CartsServicer_to_server(self, server)

    @needs(TRIGGERS)
    async def SubmitCart(self, request: messages.Parts, caller: Caller) -> pb.SubmitCartResponse:
        wanted, items = await self._submission(request, caller)
        async with aclosing(items):
            cart = await carts.submit(self._engine, wanted, items, actor=caller.name)
        return pb.SubmitCartResponse(cart=cart_message(cart))

    @needs(TRIGGERS)
    async def PlanCart(self, request: messages.Parts, caller: Caller) -> pb.PlanCartResponse:
        wanted, items = await self._submission(request, caller)
        async with aclosing(items):
            return plan_message(await carts.plan(self._engine, wanted, items))

    @needs(READS)
    async def GetCart(self, request: pb.GetCartRequest, _: Caller) -> pb.GetCartResponse:
        cart = await self._cart(request.project, request.cart)
        return view_message(await view(self._engine, cart))

    @needs(READS)
    async def ListCarts(self, request: pb.ListCartsRequest, caller: Caller) -> pb.ListCartsResponse:
        if len(request.where) > _MAX_FILTER:
            raise messages.malformed(f"where: {_MAX_FILTER:,} characters at most")
        size = messages.size_of(request.page_size, "page_size")
        project = messages.project_of(request.project)
        store = self._engine.store
        wanted = parse_cart_filter(request.where, (), looking_back(await store.now(), None))
        if wanted.states is not None and not wanted.states:
            return pb.ListCartsResponse()
        query = cart_query(project, wanted, request.page_token or None, size)
        creator = creator_meant(caller, project, messages.user_of(request.created_by))
        found = await store.carts(replace(query, created_by=creator))
        return pb.ListCartsResponse(
            carts=map(cart_message, found[:size]),
            next_page_token=cart_cursor(found[size - 1]) if len(found) > size else "",
        )

    @needs(READS)
    async def ListItems(self, request: pb.ListItemsRequest, _: Caller) -> pb.ListItemsResponse:
        size = messages.size_of(request.page_size, "page_size")
        cart = await self._cart(request.project, request.cart)
        query = item_query(
            cart,
            states=messages.states_of(request.states),
            wave=request.wave if request.HasField("wave") else None,
            cause=await cause_meant(self._engine, cart, messages.cause_of(request.cause)),
            keys=messages.keys_of(request.keys),
            cursor=request.page_token or None,
            limit=size,
        )
        found = await self._engine.store.items(query)
        return pb.ListItemsResponse(
            items=map(item_message, found[:size]),
            next_page_token=item_cursor(found[size - 1]) if len(found) > size else "",
        )

    @needs(READS)
    async def GetCells(self, request: pb.GetCellsRequest, _: Caller) -> pb.GetCellsResponse:
        cart = await self._cart(request.project, request.cart)
        # 100,000 letters take a while, and leases are renewed on this loop.
        states = await self._engine.store.cells(cart.id)
        shown = await asyncio.to_thread(cells_answer, states)
        return pb.GetCellsResponse(cells=shown.cells, legend=shown.legend)

    @needs(CANCELS)
    async def PauseCart(self, request: pb.PauseCartRequest, caller: Caller) -> pb.PauseCartResponse:
        done = await self._command(request.project, request.cart, PauseCart(), caller)
        return pb.PauseCartResponse(cart=cart_message(done.cart), changed=done.has_changed)

    @needs(TRIGGERS)
    async def ResumeCart(
        self, request: pb.ResumeCartRequest, caller: Caller
    ) -> pb.ResumeCartResponse:
        written = messages.allowance_of(request.allow)
        what = ResumeCart(None if written is None else cart_changes.allowance(written))
        done = await self._command(request.project, request.cart, what, caller)
        return pb.ResumeCartResponse(cart=cart_message(done.cart))

    @needs(CANCELS)
    async def CancelCart(
        self, request: pb.CancelCartRequest, caller: Caller
    ) -> pb.CancelCartResponse:
        what = CancelCart(stops_running=not request.let_running_finish)
        done = await self._command(request.project, request.cart, what, caller)
        return pb.CancelCartResponse(cart=cart_message(done.cart), changed=done.has_changed)

    @needs(TRIGGERS)
    async def ApproveCart(
        self, request: pb.ApproveCartRequest, caller: Caller
    ) -> pb.ApproveCartResponse:
        wave = request.wave if request.HasField("wave") else None
        what = ApproveCart(_approver(request.project, caller), wave)
        done = await self._command(request.project, request.cart, what, caller)
        return pb.ApproveCartResponse(cart=cart_message(done.cart))

    @needs(TRIGGERS)
    async def RetryCart(self, request: pb.RetryCartRequest, caller: Caller) -> pb.RetryCartResponse:
        selection = messages.selection_of(request)
        cart = await self._cart(request.project, request.cart)
        done = await cart_changes.retry(self._engine, cart, selection, actor=caller.name)
        return pb.RetryCartResponse(cart=cart_message(done.cart), items=done.items)

    @needs(TRIGGERS)
    async def EditCart(self, request: pb.EditCartRequest, caller: Caller) -> pb.EditCartResponse:
        cart = await self._cart(request.project, request.cart)
        if request.version:
            require_match(str(request.version), str(cart.version))
        change = messages.change_of(request)
        by = _approver(cart.project, caller)
        done = await cart_changes.edit(self._engine, cart, change, by=by)
        return pb.EditCartResponse(cart=cart_message(done.cart))

    async def _submission(
        self, parts: messages.Parts, caller: Caller
    ) -> tuple[carts.CartRequest, AsyncGenerator[CartItem, None]]:
        most = self._settings.max_cart_bytes
        return await messages.submission(parts, most, self._parsing, caller.name)

    async def _command(self, project: str, cart: str, what: Command, caller: Caller) -> Commanded:
        found = await self._cart(project, cart)
        return await carts.command(self._engine, found, what, actor=caller.name)

    async def _cart(self, project: str, cart: str) -> Cart:
        name = messages.reference(cart, "cart")
        return await carts.find_cart(self._engine, name, project=messages.project_of(project))


def _approver(project: str, caller: Caller) -> Approver:
    return carts.approver(caller.name, caller.role_in(messages.project_of(project)))
