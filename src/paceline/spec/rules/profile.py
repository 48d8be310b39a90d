"""What a profile cannot look into. It takes the plain step of one process, phase by phase."""

from __future__ import annotations

from paceline.spec.axes.launchers import LAUNCHERS
from paceline.spec.rules.rule import Rule

PROFILE: tuple[Rule, ...] = (
    Rule(
        "profile-counts-batches",
        lambda spec, known: spec.profile != "none" and spec.steps is None,
        "profile={profile} with epochs={epochs}: a profile counts batches: give steps=N instead",
    ),
    Rule(
        "profile-of-one-process",
        lambda spec, known: spec.profile != "none" and spec.topology.world_size > 1,
        "profile={profile} with on={on}: a profile looks into one process; use on=1x1 (`paceline run` without profile says "
        "for every rank what it computed, waited and sent)",
    ),
    Rule(
        "profile-starts-itself",
        lambda spec, known: spec.profile != "none" and LAUNCHERS[spec.launcher].has_parent,
        "profile={profile} with launcher={launcher}: one process needs nobody to start it, and what a launcher does is not in a "
        "profile; use launcher=local",
    ),
    Rule(
        "profile-of-our-step",
        lambda spec, known: spec.profile != "none" and (spec.wrap != "none" or spec.accumulate > 1),
        "profile={profile} with wrap={wrap} accumulate={accumulate}: a profile takes the plain step phase by phase; use "
        "wrap=none and accumulate=1",
    ),
    Rule(
        "profile-has-no-score",
        lambda spec, known: spec.profile != "none" and spec.target is not None,
        "profile={profile} with target={target}: a profile looks into some batches and scores nothing; leave target out",
    ),
    Rule(
        "profile-is-not-evaluated",
        lambda spec, known: spec.profile != "none" and spec.evaluate_every is not None,
        "profile={profile} with evaluate_every={evaluate_every}: a profile looks into some batches and evaluates nothing; leave "
        "evaluate_every out",
    ),
    Rule(
        "profile-stops-by-itself",
        lambda spec, known: spec.profile != "none" and spec.stop_at is not None,
        "profile={profile} with stop_at={stop_at}: a profile looks into some batches and evaluates nothing; leave stop_at out",
    ),
    Rule(
        "profile-leaves-no-weights",
        lambda spec, known: spec.profile != "none" and spec.keep != "last",
        "profile={profile} with keep={keep}: a profile looks into some batches and leaves no weights; leave keep out",
    ),
)
