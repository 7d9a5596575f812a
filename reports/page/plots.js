"use strict";
// Plots of the page: Vega-Lite specifications, drawn as SVG in the width that there is, and again when it changes.
const plots = (() => {
  const COLORS = ["#2f76c2", "#d0662a", "#2a9471", "#b0529b", "#8d7a1c", "#6f6fc4", "#c04a52", "#5f8a96"];
  const DASHES = [[1, 0], [6, 2], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3], [10, 3], [3, 1]];
  const AXIS = { labelColor: "currentColor", titleColor: "currentColor", domainColor: "currentColor", tickColor: "currentColor", gridColor: "currentColor",
    domainOpacity: 0.3, tickOpacity: 0.3, gridOpacity: 0.12, labelFontSize: 11, titleFontSize: 11, titleFontWeight: "normal" };
  const CONFIG = { background: null, font: 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif', view: { stroke: null }, axis: AXIS,
    legend: { labelColor: "currentColor", titleColor: "currentColor", labelFontSize: 11, symbolStrokeWidth: 2, orient: "top", direction: "vertical", title: null, offset: 8 } };
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);

  function tooltip(handler, event, item, value) {
    tip.hidden = value === null || value === undefined || value === "";
    if (tip.hidden) return;
    tip.textContent = Object.entries(value).map(([name, text]) => `${name}: ${text}`).join("\n");
    const left = Math.min(event.pageX + 12, document.documentElement.scrollWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${event.pageY + 14}px`;
  }

  // ast: expressions are interpreted, since the page's policy allows no code made from text.
  const OPTIONS = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false, tooltip, config: CONFIG };

  // Unpacked when the first plot needs it. The page's policy names it by its hash.
  let library = null;
  async function load() {
    const script = document.createElement("script");
    script.textContent = await unpacked("library").text();
    document.head.append(script);
    script.remove();
  }

  let drawn = []; // [node, make, view or null, width]
  async function draw(entry) {
    const [node, make] = entry;
    const width = Math.floor(node.clientWidth);
    if (!width || width === entry[3]) return;
    entry[3] = width;
    try {
      await (library ??= load());
      const result = await vegaEmbed(node, make(width), OPTIONS);
      entry[2]?.finalize();
      entry[2] = result;
    } catch (error) {
      node.textContent = `This plot could not be drawn: ${error.message}`;
    }
  }
  const watcher = new ResizeObserver((entries) => {
    for (const { target } of entries) for (const entry of drawn) if (entry[0] === target) draw(entry);
  });

  function plot(make) {
    const node = document.createElement("div");
    node.className = "plot";
    drawn.push([node, make, null, 0]);
    watcher.observe(node);
    return node;
  }

  function forget() {
    for (const [node, , result] of drawn) { watcher.unobserve(node); result?.finalize(); }
    drawn = [];
    tip.hidden = true;
  }

  const color = (names, legend) => ({ field: "name", type: "nominal", scale: { domain: names, range: names.map((_, i) => COLORS[i % COLORS.length]) }, legend });
  const dash = (names, legend) => ({ field: "name", type: "nominal", scale: { domain: names, range: names.map((_, i) => DASHES[(i + 3 * Math.floor(i / COLORS.length)) % DASHES.length]) }, legend });
  const powers = (top) => [0, 0.5, 1, ...Array.from({ length: Math.ceil(Math.log10(Math.max(top, 10))) }, (_, i) => 10 ** (i + 1))];

  // rows: name, exponent, measured, misrounded, share, maximum, bias; a gap between exponents breaks the line
  function binades(rows, names, limit, title) {
    const broken = [];
    for (const [i, row] of rows.entries()) {
      const before = rows[i - 1];
      if (before && before.name === row.name && row.exponent > before.exponent + 1) broken.push({ name: row.name, exponent: before.exponent + 1 });
      broken.push(row);
    }
    const top = rows.reduce((most, row) => Math.max(most, row.maximum), 0);
    const exponents = rows.map((row) => row.exponent);
    const [first, last] = [exponents.reduce((a, b) => Math.min(a, b)), exponents.reduce((a, b) => Math.max(a, b))];
    const legend = (width) => ({ labelLimit: width - 60, columns: 1, symbolType: "stroke" });
    const panel = (width, field, text, extra, more) => ({
      width: width - 70, height: extra.height ?? 110, autosize: { type: "pad" }, data: { values: broken },
      description: `${text} by exponent of the first input, ${title}`,
      layer: [
        ...(more ?? []),
        { mark: { type: "line", strokeWidth: 1.6, interpolate: "linear", clip: true }, encoding: { strokeDash: dash(names, extra.legend ? legend(width) : null) } },
        { mark: { type: "point", size: 40, opacity: 0, filled: true }, encoding: { tooltip: [
          { field: "name", title: "series" }, { field: "exponent", title: "exponent" }, { field: "maximum", title: "max ulp" },
          { field: "misrounded", title: "misrounded" }, { field: "measured", title: "elements" }, { field: "bias", title: "bias ulp" }] } },
      ],
      encoding: {
        x: { field: "exponent", type: "quantitative", scale: { domain: [first, Math.max(last, first + 1)], nice: false }, axis: { title: extra.last ? "exponent of the first input: floor(log2 |x|)" : null, tickMinStep: 1, format: "d", grid: false, labels: Boolean(extra.last) } },
        y: { field, type: "quantitative", scale: extra.scale ?? {}, axis: { title: text, minExtent: 46, titlePadding: 6, tickCount: 4, ...extra.axis } },
        color: color(names, extra.legend ? legend(width) : null),
      },
    });
    const wide = top > 16;
    const rule = limit === null ? [] : [{ data: { values: [{ limit }] }, mark: { type: "rule", strokeDash: [2, 3], opacity: 0.7, color: "currentColor", tooltip: null }, encoding: { x: { value: 0 }, x2: { value: "width" }, y: { field: "limit", type: "quantitative" }, color: { value: "currentColor" } } }];
    const node = document.createDocumentFragment();
    node.append(
      plot((width) => panel(width, "maximum", "max ulp", { legend: true, height: 150, scale: wide ? { type: "symlog", constant: 1, domainMin: 0 } : { domainMin: 0, domainMax: Math.max(top, limit ?? 0) * 1.06 || 1 }, axis: wide ? { values: powers(top), format: ".6~g" } : { format: ".6~g" } }, rule)),
      plot((width) => panel(width, "share", "misrounded", { axis: { format: "~%" }, scale: { domainMin: 0 } })),
      plot((width) => panel(width, "bias", "bias ulp", { last: true, axis: { format: ".6~g" } })),
    );
    return node;
  }

  function histogram(rows, names, bins, title, legend) {
    return plot((width) => ({
      width: Math.min(width - 70, bins.length * Math.max(70, names.length * 22)), height: 160, autosize: { type: "pad" }, data: { values: rows.filter((row) => row.count > 0) },
      description: `Number of elements by error in ulp, ${title}`,
      mark: { type: "bar" },
      encoding: {
        x: { field: "bin", type: "ordinal", sort: bins, scale: { domain: bins, paddingInner: 0.2 }, axis: { title: "error in ulp", labelAngle: width < 600 ? -60 : 0, labelOverlap: false } },
        xOffset: { field: "name", sort: names, scale: { domain: names } },
        y: { field: "count", type: "quantitative", scale: { type: "log", domainMin: 0.5 }, axis: { title: "elements", minExtent: 46, titlePadding: 6, format: "~s", values: powers(Math.max(...rows.map((row) => row.count))).filter((value) => value >= 1) } },
        y2: { datum: 0.5 },
        color: color(names, legend ? { labelLimit: width - 60, columns: 1, symbolType: "square" } : null),
        tooltip: [{ field: "name", title: "series" }, { field: "bin", title: "ulp" }, { field: "count", title: "elements" }],
      },
    }));
  }

  // rows: name, closer, tied, farther
  function right(rows) {
    const kinds = ["closer", "tied", "farther"];
    const long = rows.flatMap((row) => kinds.map((kind, order) => ({ name: row.name, kind, order, count: row[kind] })));
    return plot((width) => ({
      width: Math.max(120, width - Math.min(width * 0.45, 340)), height: { step: 18 }, autosize: { type: "pad" }, data: { values: long.filter((row) => row.count) },
      description: "Of the elements that differ from eager: closer to the truth, tied, farther",
      mark: { type: "bar", height: 12 },
      encoding: {
        y: { field: "name", type: "nominal", sort: rows.map((row) => row.name), scale: { domain: rows.map((row) => row.name) }, axis: { title: null, labelLimit: Math.min(width * 0.42, 320), ticks: false, domain: false } },
        x: { field: "count", type: "quantitative", stack: "normalize", axis: { title: "share of the elements that differ from eager", format: "%", tickCount: 5 } },
        order: { field: "order" },
        color: { field: "kind", type: "nominal", scale: { domain: kinds, range: ["#2a9471", "#9aa1a8", "#d0662a"] }, legend: { orient: "top", direction: "horizontal", symbolType: "square" } },
        tooltip: [{ field: "name", title: "cell" }, { field: "kind", title: "than eager" }, { field: "count", title: "elements" }],
      },
    }));
  }

  return { binades, histogram, right, forget };
})();
