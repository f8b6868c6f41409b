"""Markup escapes what is not markup, and numbers read well."""

from __future__ import annotations

import pytest

from stormpsr.evaluation.report.markup import Html, clock, counted, element, figure, join, listed, percent


def test_text_and_attributes_are_escaped_and_markup_is_not() -> None:
    inner = element("b", 'a < "b"')
    assert inner == "<b>a &lt; &quot;b&quot;</b>"
    assert element("p", inner, " & more", title='"><script>') == (
        '<p title="&quot;&gt;&lt;script&gt;"><b>a &lt; &quot;b&quot;</b> &amp; more</p>'
    )


def test_zero_is_an_attribute_and_none_is_not() -> None:
    assert element("rect", x=0, y=None, hidden=True, width=1.50, draggable=False) == (
        '<rect x="0" hidden width="1.5"></rect>'
    )


def test_names_of_attributes_may_be_words_of_python() -> None:
    assert element("img", class_="a", aria_label="b", viewBox="0 0 1 1") == (
        '<img class="a" aria-label="b" viewBox="0 0 1 1">'
    )


def test_joining_escapes_text_between_markup() -> None:
    joined = join([Html("<b>"), "<i>"], " & ")
    assert joined == "<b> &amp; &lt;i&gt;"
    assert isinstance(joined, Html)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (0.0004, "0.1 %"),
        (0.004, "0.4 %"),
        (0.5, "50 %"),
        (0.996, "99.6 %"),
        (0.9999, "99.9 %"),
        (1, "100 %"),
    ],
)
def test_a_share_is_never_rounded_to_all_or_nothing(share: float, text: str) -> None:
    assert percent(share).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (67.9, "1:07"), (3671, "1:01:11")])
def test_times_are_written_as_a_clock_shows_them(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_numbers_and_lists_in_words() -> None:
    assert [counted(1, "step"), counted(2, "step")] == ["1 step", "2 steps"]
    assert [figure(None, 2), figure(0.125, 2)] == ["–", "0.12"]
    assert [listed(["a"]), listed(["a", "b", "c"])] == ["a", "a, b and c"]
