"""Carts on the store in memory: what they do by themselves, and what people ask of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rota.domain.carts import commands
from rota.domain.carts.intake import NewItem
from rota.domain.carts.states import (
    CANCELLING,
    FINAL_CART_STATES,
    CartState,
    ItemState,
    PauseReason,
)
from rota.domain.carts.steps import Begin, Breach, End, Open, SkipRest, Stand, Start, decide
from rota.domain.ids import CartId, JobId, new_run_id
from rota.domain.order import share_key
from rota.domain.run import Trigger
from rota.domain.states import LEASED_STATES, WAITING_STATES, RunEvent
from rota.ports.carts import CancelCart, Command, NewCart, PauseCart, ResumeCart
from testkit.universes.catalogue import PROJECT, catalogue
from testkit.universes.memory.cart_rows import StoredCart, StoredItem
from testkit.universes.memory.gating import Book
from testkit.universes.memory.rows import StoredRun
from testkit.universes.timeline import TrueTime


class MemoryCarts:
    """Every verb is done at once; there is neither check nor approval between waves."""

    def __init__(self, book: Book, clock: TrueTime) -> None:
        self._book = book
        self._clock = clock

    def submit(self, new: NewCart, items: Sequence[NewItem]) -> None:
        jobs = catalogue()
        stored = [StoredItem(it.key, it.wave, jobs[JobId(it.job_id)], it.inputs) for it in items]
        self._book.carts[new.id] = StoredCart(new.id, new.created_by, new.rules, stored)

    # --- what people ask for

    def command(self, cart: CartId, command: Command) -> None:
        found = self._book.carts[cart]
        match command:
            case PauseCart():
                if commands.pause(found.facts()):
                    found.show(CartState.PAUSED, PauseReason.PERSON)
                    self._book.hold_cart(found, self._clock.now())
            case ResumeCart():
                self._resume(found, command)
            case CancelCart():
                self._cancel(found)
            case _:
                raise AssertionError(f"nobody asks for {command}")

    def _resume(self, cart: StoredCart, command: ResumeCart) -> None:
        facts = cart.facts()
        if command.allow is not None:
            failures = replace(cart.rules.failures, allow=command.allow)
            rules = replace(cart.rules, failures=failures)
            facts = replace(facts, rules=rules, is_breach_recorded=False)
        cart.show(commands.resume(facts))
        cart.rules, cart.is_breach_recorded = facts.rules, facts.is_breach_recorded
        self._book.let_cart_go(cart, self._clock.now())

    def _cancel(self, cart: StoredCart) -> None:
        if commands.cancel(cart.facts()):
            cart.ending = CartState.CANCELLED
            cart.show(CartState.RUNNING, CANCELLING)
            self._book.hold_cart(cart, self._clock.now())
        for run in cart.runs:
            run.is_cancel_requested |= run.state in LEASED_STATES

    # --- what they do by themselves

    def advance(self) -> int:
        """Let all go on as far as they can; returns how many there were."""
        live = [it for it in self._book.carts.values() if it.state not in FINAL_CART_STATES]
        for cart in live:
            while not self._is_still(cart):
                pass
        return len(live)

    def _is_still(self, cart: StoredCart) -> bool:
        """Take one step; whether that is to stand still."""
        now = self._clock.now()
        match decide(cart.facts(), self._clock.instant):
            case Stand(state, reason):
                cart.show(state, reason)
                return True
            case End(state):
                cart.show(state)
            case Begin():
                cart.show(CartState.RUNNING)
            case Open(wave):
                cart.wave, cart.current_wave = max(cart.wave, wave), wave
                cart.show(CartState.RUNNING)
            case Start(wave, count):
                self._start(cart, cart.pending(wave)[:count])
            case SkipRest():
                self._skip_rest(cart)
            case Breach(then):
                self._book.breach(cart, then, now)
            case step:
                raise AssertionError(f"no cart asks for {step}")
        return False

    def _start(self, cart: StoredCart, items: Sequence[StoredItem]) -> None:
        for item in items:
            item.run = StoredRun(
                new_run_id(self._clock.instant),
                item.known,
                Trigger.CART,
                self._clock.instant,
                share_key(PROJECT, cart.created_by),
                inputs=item.inputs,
                cart=cart.id,
                item=item.key,
            )
            self._book.insert(item.run, self._clock.now())
        cart.show(CartState.RUNNING)

    def _skip_rest(self, cart: StoredCart) -> None:
        for item in cart.items:
            item.is_skipped |= item.state is ItemState.PENDING
        for run in cart.runs:
            if run.state in WAITING_STATES:
                event = RunEvent.CANCELLED if run.attempt else RunEvent.SKIPPED
                self._book.end(run, event, self._clock.now())
