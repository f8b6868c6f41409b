"""What the scores mean, in sentences."""

from __future__ import annotations

from stormpsr.evaluation.report.content import Content, Method, number
from stormpsr.evaluation.report.markup import Html, counted, element, join, percent, seconds

_SAME = 0.005  # scores that differ by less are called equal


def plain_words(content: Content) -> Html:
    """A paragraph that somebody who has never heard of POS can read."""
    main = content.main
    if main is None or not content.n_labels:
        what = "no method" if main is None else "no labelled steps"
        return element("p", f"This run has {what}, so there is nothing to sum up.", class_="lead")
    sentences: list[str] = [_how_good(content, main)]
    if content.baseline is not None:
        sentences += _compared(content, main, content.baseline)
    sentences += _others(content, main)
    return element("p", join(sentences, " "), class_="lead")


def _how_good(content: Content, main: Method) -> Html:
    n, n_labels = len(content.recordings), content.n_labels_of(main)
    delays = content.delays(main)
    recall = len(delays) / n_labels if n_labels else 0.0
    group = content.group(main, "all")
    late = group.delay_seconds if group else None
    where = f"In {counted(n, 'recording')} with {counted(content.n_labels, 'completed step')}, {main.title} recognised "
    parts: list[str] = [where, element("strong", f"{percent(recall)} of the steps")]
    if late is not None:
        parts += [", on average ", element("strong", f"{seconds(late)} after they were completed")]
    false = _false_alarms(content, main)
    parts.append(f", and raised {counted(false, 'false alarm')}." if false else ", and raised no false alarm.")
    return join(parts)


def _compared(content: Content, main: Method, other: Method) -> list[str]:
    ours, theirs = content.group(main, "all"), content.group(other, "all")
    if ours is None or theirs is None:
        return []
    sentences = []
    if ours.delay_seconds is not None and theirs.delay_seconds is not None:
        gain = theirs.delay_seconds - ours.delay_seconds
        if abs(gain) < 0.05:
            sentences.append(f"That is as late as {other.title}.")
        else:
            word = "sooner" if gain > 0 else "later"
            share = f" ({percent(abs(gain) / theirs.delay_seconds)})" if theirs.delay_seconds > 0 else ""
            text = f"That is {seconds(abs(gain))}{share} {word} than {other.title}"
            sentences.append(text + _in_how_many(content, main, other, gain > 0) + ".")
    if ours.f1 is not None and theirs.f1 is not None:
        sentences.append(_f1_sentence(content, main, other, ours.f1, theirs.f1))
    return sentences


def _pairs(content: Content, main: Method, other: Method, key: str) -> list[tuple[float, float]]:
    """A score of both methods in every recording that has both."""
    pairs = []
    for view in content.recordings:
        ours, theirs = (number(content.recording_row(method, view.name).get(key)) for method in (main, other))
        if ours is not None and theirs is not None:
            pairs.append((ours, theirs))
    return pairs


def _in_how_many(content: Content, main: Method, other: Method, sooner: bool) -> str:
    """`, and sooner in 17 of 20 recordings`: the same people, so the same recordings are compared."""
    pairs = _pairs(content, main, other, "delay_seconds")
    if len(pairs) < 2:
        return ""
    n = sum(ours < theirs if sooner else ours > theirs for ours, theirs in pairs)
    return f", and {'sooner' if sooner else 'later'} in {n} of {len(pairs)} recordings"


def _f1_sentence(content: Content, main: Method, other: Method, ours: float, theirs: float) -> str:
    figures = f"(F1 {ours:.3f} against {theirs:.3f})"
    if abs(ours - theirs) < _SAME:
        return f"Both are equally exact {figures}."
    better = ours > theirs
    text = f"It is {'more' if better else 'less'} exact {figures}"
    pairs = _pairs(content, main, other, "f1")
    if len(pairs) > 1:
        n = sum(a > b if better else a < b for a, b in pairs)
        equal = sum(a == b for a, b in pairs)
        text += f", in {n} of {len(pairs)} recordings" + (f" and equally so in {equal}" if equal else "")
    return text + "."


def _others(content: Content, main: Method) -> list[str]:
    """A word on each other stream: earlier or later, and its false alarms."""
    sentences = []
    group = content.group(main, "all")
    for method in content.methods:
        theirs = content.group(method, "all")
        if method in (main, content.baseline) or group is None or theirs is None:
            continue
        if theirs.delay_seconds is None or theirs.f1 is None:
            continue
        false, recall = _false_alarms(content, method), len(content.delays(method))
        share = percent(recall / content.n_labels_of(method)) if content.n_labels_of(method) else "none"
        text = f"{method.title} took {seconds(theirs.delay_seconds)}, found {share} of the steps "
        sentences.append(text + f"and raised {counted(false, 'false alarm') if false else 'no false alarm'}.")
    return sentences


def _false_alarms(content: Content, method: Method) -> int:
    scores = (view.scores[method.name] for view in content.recordings if method.name in view.scores)
    return sum(len(found.unmatched_events) for found in scores)
