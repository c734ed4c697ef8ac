"""Turns of trains, and the rules of one-step jobs, for both models of CP-SAT.

Positions of phases on the circle lie in ``[0, C)``; a train's start on the unrolled circle is its
position and ``C`` times its *turn*, counted from that of its job's first rollout. Of a sync job
only the last train may start in the next turn. A train of a one-step job ends before the rollout
two iterations on starts, so before the end of the third turn: its turn is 0, 1 or 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ortools.sat.python import cp_model

from models.backends.cp_sat import Answer

__all__ = ["Turn", "one_step_rules", "train_turns", "turn_of"]

#: A variable of a model, or what is linear in some; the turn of a train that may be known.
Amount = cp_model.LinearExpr | int
Starts = Sequence[cp_model.LinearExpr]
Turn = cp_model.IntVar | int


def train_turns(model: cp_model.CpModel, name: str, rate: int, lag: int) -> list[Turn]:
    """Return the turn each train of a job starts in, counted from that of its first rollout."""
    if lag == 1:
        return [*[0] * (rate - 1), model.new_bool_var(f"B[{name}]")]
    return [model.new_int_var(0, lag, f"B[{name},{i}]") for i in range(rate)]


def turn_of(answer: Answer, turn: Turn) -> int:
    """Return the turn of a train in a solution."""
    return turn if isinstance(turn, int) else answer.value(turn)


def one_step_rules(
    lag: int, phases: tuple[Amount, Amount, int], starts: tuple[Starts, Starts], period: int
) -> Iterator[cp_model.BoundedLinearExpression | bool]:
    """Yield the rules of one one-step job, ``p, q, s`` and starts ``X, Y`` on the unrolled circle.

    ``Y_l >= X_l + p``; ``Y_l + q + s <= X_(l+2)``; ``X_l + p <= X_(l+1)``; ``Y_l + q <= Y_(l+1)``;
    where ``X_(l+k) = X_l + C``, ``Y_(l+k) = Y_l + C``.
    """
    p, q, sync = phases
    rollout, train = starts
    rate = len(rollout)

    def at(of: Starts, i: int) -> cp_model.LinearExpr:
        return of[i % rate] + period * (i // rate)

    for i in range(rate):
        yield train[i] - rollout[i] - p >= 0
        yield at(rollout, i + lag) - train[i] - q >= sync
        if rate > 1:
            yield at(rollout, i + 1) - rollout[i] - p >= 0
            yield at(train, i + 1) - train[i] - q >= 0
    if rate == 1:  # p, q <= C
        yield period + rollout[0] - rollout[0] - p >= 0
        yield period + rollout[0] - rollout[0] - q >= 0
