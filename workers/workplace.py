"""Where one attempt works: its worktree, adopted or made, set up, checkpointed, verified and given back.

It does what git and commands have to do for an attempt, and logs it; what that leads to is `attempt.py`'s business.
"""

from collections.abc import Sequence

from worktrees.checkpoint import Checkpoint, checkpoint
from worktrees.process import sweep
from worktrees.worktree import Worktree, Worktrees

from .blocking import blocking
from .gate import LeaseGate
from .orders import UnitOrder
from .places import Places
from .session import events as ev
from .session.session import Session
from .verify import headline, run_stage, verify

__all__ = ["Workplace"]


class Workplace:
    """One attempt's worktree and the commits made in it."""

    def __init__(
        self, order: UnitOrder, places: Places, session: Session, gate: LeaseGate, worktrees: Worktrees
    ) -> None:
        self._order, self._places, self._session, self._gate = order, places, session, gate
        self._worktrees = worktrees
        self._name = f"{order.unit}.{order.attempt}"
        self._tree: Worktree | None = None
        self._reached: str | None = None

    @property
    def tree(self) -> Worktree:
        """The worktree; only after `open`."""
        assert self._tree is not None
        return self._tree

    async def open(self) -> bool:
        """Adopt the worktree that is there, or make one at the last checkpoint; True where effects were lost."""
        is_first = self._order.attempt == 1 and self._session.count(ev.Claim) == 1  # nobody was here before
        alone = is_first or await sweep(self._places.tag)
        await self._gate.before_effect()
        if not alone:  # somebody is still at work in there, and cannot be killed: leave it to them (rule 7)
            self._name = f"{self._order.unit}.{self._order.attempt}.e{self._order.epoch}"
        else:
            self._tree = await blocking(self._worktrees.adopt, self._name)
        if self._tree is not None:
            return False
        self._tree = await blocking(self._worktrees.create, self._name, self._last() or self._order.base)
        return self._session.count(ev.TurnStart) > 0

    async def set_up(self) -> str | None:
        """Run the setup command once per tree; the reason when it failed."""
        command = self._order.verify.setup
        marker = self.tree.admin_dir / "overnight-setup-done"  # goes when the tree goes
        if command is None or marker.exists():
            return None
        done = await run_stage(command, self._order.verify.setup_timeout, self.tree.path, self._places.tag)
        await self._session.record(ev.SetupResult(ok=done.ok, seconds=round(done.seconds, 3), output=done.output))
        if not done.ok:
            return f"setup failed: {headline(done.output)}"
        marker.touch()
        return None

    async def checkpoint(self, message: str) -> Checkpoint:
        """Commit the worktree, taking protected paths back, and log it. Raises NestedRepository, changing nothing."""
        await self._gate.before_effect()
        made = await blocking(
            checkpoint,
            self.tree,
            base=self._order.base,
            message=message,
            protected=self._order.verify.protect,
            may_edit=self._order.verify.may_edit,
            expected=self._last(),
        )
        await blocking(self._move_ref, made.commit)
        await self._session.record(ev.Checkpoint(commit=made.commit, tree=made.tree, taken_back=list(made.taken_back)))
        return made

    async def verify(self, made: Checkpoint) -> ev.VerifyResult:
        """Verify a checkpoint in a clean tree of its own, and log what came of it."""
        name = f"{self._name}.verify"
        outcome = await verify(self._worktrees, name, made.commit, self._order.verify, tag=self._places.tag)
        result = ev.VerifyResult(
            commit=made.commit,
            tree=made.tree,
            command=outcome.command,
            digest=self._order.digest,
            passed=outcome.passed,
            seconds=round(outcome.seconds, 3),
            exit_code=outcome.exit_code,
            output=outcome.output,
        )
        await self._session.record(result)
        return result

    async def changed(self) -> Sequence[str]:
        """Return the paths in which the last checkpoint, where there is one, differs from the base."""
        last = self._last()
        if last is None:
            return ()
        return await blocking(self._worktrees.repository.changed_paths, self._order.base, last)

    async def give_back(self) -> None:
        """Remove the worktree: its checkpoints are safe."""
        await blocking(self._worktrees.remove, self._name, kept=self._last())

    def _last(self) -> str | None:
        last = self._session.last(ev.Checkpoint)
        return None if last is None else last.commit

    def _move_ref(self, commit: str) -> None:
        """Let the hand-out's own ref reach the commit; nobody else ever moves it (protocol rule 16)."""
        if commit != self._reached:
            self._worktrees.repository.update_ref(self._order.ref, commit, self._reached, message="checkpoint")
            self._reached = commit
