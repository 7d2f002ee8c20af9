"""What is known of a cart at one moment, read under its lock: all that a decision may rest on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rota.domain.carts.definition import CartRules
from rota.domain.carts.states import FINAL_CART_STATES, CartState
from rota.domain.states import RunState


@dataclass(frozen=True, slots=True)
class CartFacts:
    """A cart, its counters and its gate.

    The *current* wave is the one that was opened last; all OPEN items are in it. It is lower than
    the highest opened one while items of an earlier wave are run once more.
    """

    rules: CartRules  # with the allowance as it was last raised
    state: CartState
    items: int  # of the whole cart
    reason: str = ""  # a PauseReason, a WaitReason or CANCELLING; "": none
    ending: CartState | None = None  # CANCELLED or FAILED: what it becomes when nothing is OPEN
    starts_at: datetime | None = None  # None: as soon as it is submitted

    wave: int = 0  # the highest that was ever opened; 0: none
    current_wave: int = 0  # 0: none, or the cart had ended and goes on by a retry
    pending_wave: int | None = None  # the lowest with PENDING items; None: there are none
    pending_in_wave: int = 0  # PENDING items of that wave
    open: int = 0  # OPEN items, those UNKNOWN included
    waiting: int = 0  # of the OPEN: whose run is held by no worker and not UNKNOWN
    unknown: int = 0  # of the OPEN: whose run is UNKNOWN
    completed: int = 0
    failed: int = 0  # FAILED or TIMED_OUT
    items_in_wave: int = 0  # of the current wave
    failed_in_wave: int = 0  # FAILED or TIMED_OUT of the current wave
    is_breach_recorded: bool = False  # of `then: continue`, in the present scope

    wave_ended_at: datetime | None = None  # when the last item so far ended; None: none did
    check: RunState | None = None  # of the waves so far; None: not begun since the last start
    approved_by: str = ""  # since the last start of an item; "": nobody
    closed_until: datetime | None = None  # by its calendars; None: they are open

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_CART_STATES

    @property
    def is_ending(self) -> bool:
        return self.ending is not None and not self.is_final
