"""The words on top: what was run, what came out, how to read it. Every number in them is measured."""

from collections.abc import Mapping, Sequence

from ghrq.recipes import shipped, summary
from ghrq.report.kinds import KINDS
from ghrq.report.tables import Measured, count
from ghrq.tasks.wordnet.report.folders import Folders
from ghrq.tasks.wordnet.report.outcome import Group, Outcome
from ghrq.tasks.wordnet.report.tables import PAPER_RECALL, percent

HOW_TO_READ = (
    "**How to read it.** A model sees the codes of a synset and names tuples of codes that its ancestors might have. "
    "If a matched tuple were enough, codes that throw thousands of synsets together would win, as few tuples are easy "
    "to guess. So the score that counts is *entity level*: a matched tuple that m synsets share counts 1/m. And it "
    "means something only beside what needs no good codes: **random codes**, the same model on meaningless tuples, one "
    "for each synset; **popularity**, the most frequent ancestors for everybody; and **graph composition**, the "
    "ancestors of ancestors in the training pairs, without any model."
)


def lead(outcome: Outcome, folders: Folders) -> list[str]:
    """The paragraphs on top."""
    return [_what_was_run(outcome, folders), *_what_came_out(outcome), HOW_TO_READ]


def diverged(outcome: Outcome) -> list[str]:
    """Which runs came to nothing, and why."""
    runs = [(group.run_name(seed), text) for group in outcome.groups for seed, text in group.diverged.items()]
    return ["**Diverged:** " + "; ".join(f"`{name}`: {text}" for name, text in runs)] if runs else []


def _what_was_run(outcome: Outcome, folders: Folders) -> str:
    recipes = _join([f"`{setting}`{_purpose(setting)}" for setting in outcome.settings])
    capacities = _join([str(capacity) for capacity in outcome.capacities])
    text = f"**What was run.** {count(outcome.runs, 'run')} with {count(len(outcome.seeds), 'seed')}: {recipes}, "
    text += f"at {capacities} (dimension of the points, codes of a stage). "
    failed = sum(len(group.diverged) for group in outcome.groups)
    if failed:
        text += f"**{count(failed, 'run')} diverged**; the last section tells which. "
    recipe = next((r for setting in outcome.settings if (r := folders.recipe(setting)) is not None), None)
    if recipe is not None:
        data = recipe.data
        text += (
            f"The split `{data.split}` holds out {100 * data.test_fraction:.0f}\u00a0% of the pairs of a noun and an "
            f"ancestor in WordNet, {'with' if data.instances else 'without'} instances. "
        )
    first = next((group.first["recall"] for group in outcome.groups if group.first), None)
    if first is not None:
        text += (
            f"Each model was asked for ancestors of {first['sources']:,} synsets, {first['pairs']:,} held-out pairs "
            f"in all, by beams of {first['beam']}. "
        )
    seconds = [value for setting in outcome.settings for value in folders.seconds(setting).values]
    if seconds and len(seconds) == outcome.runs:
        text += f"Training took {_duration(sum(seconds))} altogether."
    return text.strip()


def _what_came_out(outcome: Outcome) -> list[str]:
    paragraphs = []
    for setting in outcome.settings:
        scores = {
            group: score
            for group in outcome.of(setting, outcome.main)
            if (score := percent(group.number("recall", "constrained", "entity_filtered")))
        }
        if not scores:
            continue
        ranked = sorted(scores, key=lambda group: -scores[group].mean)
        named = [f"{KINDS[group.kind].label} {_shown(scores[group])}" for group in ranked]
        text = (
            f"**What came out with `{setting}`** ({outcome.main}). Held-out ancestors among the first {outcome.k} "
            f"guesses, entity level, known ancestors filtered: {_join(named)}. "
        )
        text += _against_baselines(outcome, setting, ranked[0], scores[ranked[0]])
        ghrq = next((group for group in scores if group.kind == "ghrq"), None)
        if ghrq is not None:
            text += _against_others(ghrq, scores) + _tuples(ghrq, outcome)
        paragraphs.append(text.strip())
    return paragraphs or ["**What came out.** Nothing yet: no run has come to a result."]


def _against_baselines(outcome: Outcome, setting: str, best: Group, score: Measured) -> str:
    bars = {
        label: percent(outcome.baseline(name, "filtered"))
        for name, label in (("composition", "graph composition"), ("popularity", "popularity"))
    }
    for group in outcome.random(outcome.main, setting)[:1]:
        label = "random codes" if group.setting == setting else f"random codes of `{group.setting}`"
        bars[label] = percent(group.number("recall", "constrained", "entity_filtered"))
    told = {label: f"{label} ({_shown(bar)})" for label, bar in bars.items() if bar}
    below = [text for label, text in told.items() if score.mean > bars[label].mean]
    above = [text for label, text in told.items() if score.mean <= bars[label].mean]
    name = KINDS[best.kind].label
    if not told:
        return ""
    if not above:
        return f"The best, {name}, beats {_join(below)}. "
    if not below:
        return f"Even the best, {name}, does not beat {_join(above, 'or')}. "
    return f"The best, {name}, beats {_join(below)}, but **not** {_join(above, 'or')}. "


def _against_others(ghrq: Group, scores: Mapping[Group, Measured]) -> str:
    """GHRQ beside the kinds it wants to be better than, and whether that is more than the seeds scatter."""
    told, mine = [], scores[ghrq]
    for group, score in scores.items():
        if group.kind not in ("naive", "euclidean"):
            continue
        difference = mine.mean - score.mean
        scatter = (mine.spread**2 + score.spread**2) ** 0.5
        if min(len(mine.values), len(score.values)) < 2:
            remark = "one seed: perhaps chance"
        else:
            remark = "more than seeds scatter" if abs(difference) > scatter else "within the scatter of seeds"
        place = "ahead of" if difference > 0.0 else "behind"
        told.append(f"{abs(difference):.1f} points {place} {KINDS[group.kind].label} ({remark})")
    return f"GHRQ is {_join(told)}. " if told else ""


def _tuples(ghrq: Group, outcome: Outcome) -> str:
    """What the paper's way of counting makes of it."""
    counted = percent(ghrq.number("recall", "free", "tuple"))
    frequent, distinct = ghrq.number("distinct_frequent"), ghrq.number("distinct")
    paper = PAPER_RECALL["ghrq"].get(outcome.main)
    beside = f" (the paper: {_shown(Measured((paper,)))})" if paper is not None else ""
    return (
        f"Counted by tuples as in the paper, GHRQ gets {_shown(counted)}{beside}, with {distinct.show('.3f')} "
        f"distinct tuples a synset and {frequent.show('.0f')} for the 200 most frequent ancestors."
    )


def _purpose(setting: str) -> str:
    path = shipped().get(f"wordnet/{setting}")
    text = summary(path) if path is not None else ""
    return f" ({text[0].lower()}{text[1:]})" if text else ""


def _shown(score: Measured) -> str:
    return f"{score.show('.1f')}\u00a0%"


def _join(parts: Sequence[str], word: str = "and") -> str:
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {word} {parts[-1]}"


def _duration(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
