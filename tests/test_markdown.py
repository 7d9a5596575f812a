"""Pages as GitHub Markdown: the same facts as on the terminal, and nothing but text from whatever a name holds."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from sample_reports import cell, report
from verify.reports import markdown
from verify.reports.blocks import Column, Line, Page, Row, Table
from verify.reports.run_page import kernel_page
from verify.reports.schema import Report
from verify.reports.text import printable

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])

#: What GitHub links, or replaces, in rendered text that is not inside <code>.
LINKED = re.compile(r"[@#$]|:[\w+-]+:|www\.|://|GH-\d|\b(?=\w*[a-f])[0-9a-f]{7,40}\b", re.IGNORECASE)

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a | b || c \\| d \\\\| e",
    "`code` ``` fence ~~~",
    "[text](javascript:alert(1)) ![i](http://x.y/z.png)",
    "https://example.com",
    "www.example.com",
    "a@b.example",
    "@octocat",
    "#12 octo/repo#4",
    "see GH-3",
    ":smile:",
    "0123abcdef0123abcdef0123abcdef0123abcdef",
    "*bold* _foreach_ __dunder__ ~~gone~~ **",
    "# heading",
    "- item\n1. item\r\n> quote",
    "+ x",
    "1. x",
    "12) x",
    "=== ---",
    "&lt;b&gt; &amp;",
    "&#64; &#x40;",
    "```",
    "~~~~",
    "$x$ $$y$$",
    "\x1b[31mred\x1b]0;t\x07 \u202eevil",
    "\\",
    "ends with \\",
    "| --- |",
    "[^1] [ ] [x]",
    "<!-- hidden -->",
    "<https://x.y>",
    "  lead and trail  ",
)
texts = st.one_of(
    st.text(st.sampled_from("ab1 |\\`*_<>[]()!&#@:$~-+.=\n\x1b/w"), max_size=12),
    st.text(max_size=12),
)


def children(source: str) -> list[Any]:
    """Inline tokens of the whole document, in order."""
    return [child for token in PARSER.parse(source) for child in token.children or []]


def shown(tokens: list[Any]) -> str:
    """The text that a reader sees. Nothing but text, emphasis of our own and <code> may occur."""
    seen = []
    for token in tokens:
        if token.type == "html_inline":
            assert token.content in ("<code>", "</code>")
        else:
            assert token.type in ("text", "text_special", "strong_open", "strong_close"), token.type
            seen.append(token.content)
    return "".join(seen)


def linkable(tokens: list[Any]) -> str:
    """The text outside <code>, where GitHub looks for mentions, references, emoji and addresses."""
    seen, inside = [], False
    for token in tokens:
        if token.type == "html_inline":
            inside = token.content == "<code>"
        elif not inside:
            seen.append(token.content)
    return "".join(seen)


def squeezed(text: str) -> str:
    return " ".join(printable(text).split())


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_comes_out_as_itself(text: str) -> None:
    check_everywhere(text)
    check_command(text)


@given(texts)
def test_any_text_comes_out_as_itself(text: str) -> None:
    check_everywhere(text)
    check_command(text)


def check_everywhere(text: str) -> None:
    """In a title, a line, a label, a table's head, cells and headings."""
    table = Table((Column("cell"), Column(text or "x", right=True)), (Row(("k", text)), Row((f"h {text}", ""), True)))
    page = Page("t" + text, (Line(text or "x"), Line("plain", label=f"l {text}:"), table))
    source = "".join(markdown.lines(page))
    kinds = [token.type for token in PARSER.parse(source)]
    assert {"html_block", "heading_open", "blockquote_open", "fence", "code_block", "hr"}.isdisjoint(kinds)
    assert kinds.count("bullet_list_open") == 1
    assert kinds.count("list_item_open") == 2
    assert kinds.count("table_open") == 1
    assert kinds.count("tr_open") == 3
    inline = [token.children for token in PARSER.parse(source) if token.type == "inline"]
    told = [squeezed(shown(tokens)) for tokens in inline]
    assert told == [
        squeezed("t" + text),
        squeezed(text or "x"),
        squeezed(f"l {text}: plain"),
        "cell",
        squeezed(text or "x"),
        "k",
        squeezed(text),
        squeezed(f"h {text}"),
        "",
    ]
    assert not any(LINKED.search(linkable(tokens)) for tokens in inline)


def check_command(text: str) -> None:
    """One fenced block, whatever the command quotes."""
    for command in (f"verify explain {text}", text):
        page = Page("p", (Line("before"), Line(command, kind="command"), Line("after")))
        tokens = PARSER.parse("".join(markdown.lines(page)))
        fences = [token for token in tokens if token.type == "fence"]
        assert [token.info for token in fences] == ["sh"]
        assert squeezed(fences[0].content.removesuffix("\n")) == squeezed(command)
        assert [token.content for token in tokens if token.type == "inline"] == ["**p**", "before", "after"]


def test_a_script_is_one_block() -> None:
    lines = ["verify explain exp", "import torch", "with torch.no_grad():", "    y = f(x)"]
    page = Page("p", (Line("before"), *(Line(text, kind="command") for text in lines), Line("after")))
    tokens = PARSER.parse("".join(markdown.lines(page)))
    fences = [(token.info, token.content) for token in tokens if token.type == "fence"]
    assert fences == [("sh", "verify explain exp\n"), ("python", "\n".join([*lines[1:], ""]))]


def test_the_terminals_facts_and_no_others() -> None:
    sample = Report.model_validate(report(cell(), cell(lowering="_private_", status="exceeds-bound", reason="a|b")))
    page = kernel_page(sample, "addcmul")
    told = shown(children("".join(markdown.lines(page))))
    for block in page.blocks:
        strings = [t for row in block.rows for t in row.cells] if isinstance(block, Table) else [block.label]
        assert all(text in told for text in map(str.strip, strings))
    source = "".join(markdown.lines(page))
    assert "--:" in source  # numbers are on the right


@pytest.mark.parametrize("text", ["fma(value*b, c, a)", "|w| < 1/2: a + w*(b-a)", "sm_90"])
def test_formulas_and_names_stay_readable_in_the_source(text: str) -> None:
    assert markdown.escape(text).replace("\\", "") == text
