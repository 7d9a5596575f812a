"""`verify report --html`: reports as one page that needs no network, with everything in it.

Its data are made in `verify.reports.embedded`, its looks and behaviour are in the folder page/. Plots are drawn in the
browser by Vega-Lite, which vl-convert-python holds (both BSD-3-Clause; page/licenses.txt goes into the page).
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib
import importlib.resources
from collections.abc import Sequence
from pathlib import Path
from string import Template
from types import ModuleType

from verify import __version__
from verify.facts.kernel import UsageError
from verify.reports import store
from verify.reports.embedded import Embedded, embed, packed
from verify.reports.text import count_text, printable

#: What the whole library takes at most; a larger page says so.
EXPECTED_BYTES = 3_000_000


def write(paths: Sequence[str | Path], out: str | Path, baseline: str | Path | None = None) -> str:
    """Write the page of the reports in `paths` to `out` ('-' is standard output); returns a line that says what it is.

    `baseline`: a folder of `verify accept`, or another report, from which differences are shown. Raises UsageError for
    files that are not reports or cannot be written and where vl-convert-python is missing, NothingToCompare where
    there is no cell.
    """
    store.ensure_writable(out)
    vl_convert()  # says what is missing before a report is read
    found = embed(paths, baseline)
    subject = found.kernels[0] if len(found.kernels) == 1 else f"{len(found.kernels)} kernels"
    title = f"{subject} on {', '.join(found.devices)}"
    text = page(title, plotting_library(), found)
    store.write_text([text], out)
    size = len(text.encode())
    large = f"; larger than {EXPECTED_BYTES / 1e6:.0f} MB, since nothing is left out" if size > EXPECTED_BYTES else ""
    name = "standard output" if str(out) == "-" else out
    return f"page: {name}, {count_text(found.cells, 'cell')}, {size / 1e6:.2f} MB{large}"


def page(title: str, library: str, found: Embedded) -> str:
    """The page's text. library: JavaScript that defines vegaEmbed."""
    unpack, plots, script, style = (_part(name) for name in ("unpack.js", "plots.js", "page.js", "page.css"))
    parts = {
        "title": html.escape(printable(title)),
        "version": html.escape(__version__),
        "policy": _policy((unpack, plots, script, library), style),
        "style": style,
        "data": found.data,
        "binades": found.binades,
        "library": packed([library]),
        "unpack": unpack,
        "plots": plots,
        "script": script,
        "licenses": html.escape(_part("licenses.txt")),
    }
    return Template(_part("page.html")).substitute(parts)


def vl_convert() -> ModuleType:
    """The package that holds Vega-Lite. Raises UsageError where it is missing."""
    try:
        return importlib.import_module("vl_convert")
    except ImportError:
        raise UsageError(
            "the page's plots need vl-convert-python (Vega-Lite), which is not installed: pip install 'ulproof[page]'"
        ) from None


def plotting_library() -> str:
    """JavaScript that defines `vegaEmbed`."""
    text: str = vl_convert().javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return text


def _policy(scripts: Sequence[str], style: str) -> str:
    """A Content-Security-Policy: no network at all, and no code or style but the page's own, by hash."""
    own = " ".join(_source(script) for script in scripts)
    return f"default-src 'none'; script-src {own}; style-src {_source(style)}; base-uri 'none'; form-action 'none'"


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _part(name: str) -> str:
    return importlib.resources.files("verify.reports").joinpath("page", name).read_text(encoding="utf-8")
