"use strict";
// Data, routes and tables of the page. What the data hold enters the document as text nodes and attribute values only.
(async () => {
  if (!globalThis.DecompressionStream) {
    document.getElementById("main").textContent = "This page is packed, and this browser cannot unpack it: it needs Chrome 80, Firefox 113, Safari 16.4 or a later one. verify run and verify compare print the same facts.";
    return;
  }
  const data = await unpacked("data").json();
  const { values, columns, devices } = data;
  const tables = Object.fromEntries(Object.entries(data.tables).map(([name, table]) => [name, (table[0] ?? []).map((_, row) => table.map((column) => column[row]))]));
  const rowsOf = (table, rows) => rows && rows.map((row) => tables[table][row]);
  // the columns that are not named here hold indices of values
  const own = (value) => value, error = (index) => tables.error[values[index]] ?? null;
  const direct = { device: (index) => devices[index], binades: own, digest: own, kernel_s: own, check_s: own, mp_elements: own, numbers: error, rounded: error,
    candidates: (index) => rowsOf("candidate", values[index]), worst: (index) => rowsOf("element", values[index]) };
  const SHOWN = 200; // rows of a table that are drawn at once
  const WIDEST = 12; // columns of a matrix
  const FIRST = 5; // failures and deviations that stand above everything else

  // What is sorted and coloured is what is shown
  const amount = (text) => { const value = Number.parseFloat(text); return Number.isNaN(value) ? null : value; };
  const counted = (cell, name) => cell.counts[data.counts.indexOf(name)];
  const cells = columns.device.map((_, number) => {
    const cell = { number };
    for (const name of Object.keys(columns)) cell[name] = direct[name] ? direct[name](columns[name][number]) : values[columns[name][number]];
    cell.ran = cell.numbers !== null;
    const [maxima, counts] = [data.numbers.length, data.numbers.length + data.counts.length];
    const told = (list) => [list.slice(0, maxima), list.slice(maxima, counts)];
    if (cell.ran) [cell.maxima, cell.counts, cell.histogram] = [...told(cell.numbers), [values[cell.numbers[counts]], cell.numbers[counts + 1]]];
    if (cell.rounded) cell.rounded = told(cell.rounded);
    Object.assign(cell, { size: amount(cell.error), part: amount(cell.share) });
    cell.ulp = cell.ran ? cell.maxima[0] : null;
    cell.wrong = cell.ran ? counted(cell, "misrounded") / Math.max(1, cell.inputs) : null; // the share of elements
    [cell.trust, cell.flags, cell.properties, cell.paths, cell.ftz, cell.chunks, cell.repeats, cell.distinct, [cell.fails, cell.allowance, cell.kind, cell.ledger, cell.beside], cell.calls] = cell.more;
    cell.regions = rowsOf("region", cell.regions).map((region) => regionOf(cell, region));
    const [kind, size, seed, digest, source] = cell.domain;
    Object.assign(cell, { slug: `${kind}-${size}-${seed}`, seed, inputsDigest: digest, sourceDigest: source });
    cell.domain = size ? `${kind} of ${size}, seed ${seed}` : "-";
    cell.among = size ? `${kind} ${size}` : "-";
    cell.remark = cell.ran && cell.status === "passed" && cell.reason !== "";
    return cell;
  });

  // A region is read as a cell is: same names, its own figures
  function regionOf(cell, [name, inputs, status, why, error, metric, bound, share, off, most, misrounded, classes, unjudged, resolution, worst, source]) {
    const [kind, reason, ledger] = values[why];
    return { cell, name, inputs, status, kind, reason, ledger, error, metric, bound, share, misrounded: off, "max ulp": most, part: amount(share), size: amount(error), ulp: amount(most),
      wrong: misrounded / inputs, classes, unjudged, resolution, worst: rowsOf("element", worst), source: values[source], number: cell.number, ran: true, remark: false };
  }
  const tone = (status) => data.looks[status][0];
  const countedAs = (cell) => !cell.fails && ["bad", "open"].includes(tone(cell.status)) ? "allowed" : data.looks[cell.status][2];
  const regionNames = [...new Set(cells.flatMap((cell) => cell.regions.map(({ name }) => name)))];
  const several = (name) => new Set(cells.map((cell) => cell[name])).size > 1;
  const many = { device: devices.length > 1, spelling: several("spelling"), output: several("output") };
  if (new Set(cells.filter((cell) => cell.ran).map((cell) => cell.seed)).size > 1) for (const cell of cells) if (cell.among !== "-") cell.among += `, seed ${cell.seed}`;

  // Document

  function h(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes ?? {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    return put(node, children);
  }
  function put(node, children) {
    node.append(...[children].flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return node;
  }
  const grouped = (number) => number.toLocaleString("en").replaceAll(",", "\u202f");
  const count = (number, noun) => `${grouped(number)} ${noun}${number === 1 ? "" : "s"}`;
  const said = document.getElementById("said");

  function copyButton(text) {
    const button = h("button", { type: "button", class: "copy", "aria-label": `Copy: ${text}` }, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = said.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(button.parentNode.querySelector("code"));
        button.textContent = said.textContent = "Selected: press Ctrl+C";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    return button;
  }
  const command = (text) => h("div", { class: "command" }, h("code", {}, text), copyButton(text));

  function facts(pairs) {
    const shown = pairs.filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && !value.length));
    return h("dl", { class: "facts" }, shown.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
  }

  // What is long is made when it is asked for
  function unfolded(title, make) {
    const node = h("details", {}, h("summary", {}, title));
    node.addEventListener("toggle", () => { if (node.childNodes.length === 1) put(node, make()); });
    return node;
  }

  // Routes: #/, #/kernel/NAME and #/cell/KERNEL/DEVICE/LOWERING/..., each with a query

  function address(parts, query) {
    const text = query ? query.toString() : "";
    return `#/${parts.map((part) => encodeURIComponent(part) || "~").join("/")}${text ? `?${text}` : ""}`;
  }
  const kernelHref = (kernel, query) => address(["kernel", kernel], new URLSearchParams(query));
  const cellParts = (cell) => ["cell", cell.kernel, cell.device.id, cell.lowering, cell.spelling, cell.dtype, cell.scalars, cell.output, cell.slug];
  const cellHref = (cell) => address(cellParts(cell));

  function place() {
    const [path, text] = location.hash.replace(/^#\/?/, "").split("?");
    try {
      return { parts: path.split("/").map(decodeURIComponent), query: new URLSearchParams(text) };
    } catch {
      return { parts: [path], query: new URLSearchParams(text) };
    }
  }

  function replaceQuery(query) {
    const { parts } = place();
    for (const [name, value] of [...query]) if (!value) query.delete(name);
    history.replaceState(null, "", parts[0] ? address(parts, query) : `#/${query.size ? `?${query}` : ""}`);
  }

  // Filters

  const FACETS = { device: "Device", lowering: "Lowering", dtype: "Dtype", scalars: "Scalars", spelling: "Spelling", output: "Output", status: "Status" };
  // `status` keeps a cell of which any region has it, so that no fault is filtered away by another
  const matches = (cell, name, value) => facet(cell, name) === value || (name === "status" && cell.regions.some((one) => one.status === value));
  const facet = (cell, name) => (name === "device" ? cell.device.id : cell[name]);
  const facetText = (cell, name) => (name === "device" ? cell.device.label : cell[name] || "none");

  function searchText(cell) {
    cell.search ??= [cell.kernel, cell.device.label, cell.device.backend, cell.lowering, cell.spelling, cell.dtype, cell.scalars, cell.output,
      cell.status, cell.reason, cell.formula, cell.metric, cell.verdict?.[0] ?? "", ...cell.ledger, ...cell.regions.map((one) => `${one.name} ${one.status} ${one.reason}`)].join(" ").toLowerCase();
    return cell.search;
  }

  function matching(some, query) {
    const words = (query.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = Object.keys(FACETS).filter((name) => query.get(name));
    return some.filter((cell) => chosen.every((name) => matches(cell, name, query.get(name)))
      && words.every((word) => searchText(cell).includes(word)));
  }

  function choice(label, name, options, query, redraw, chosen = query.get(name) ?? "") {
    const select = h("select", { name, onchange: () => { query.set(name, select.value); replaceQuery(query); redraw(); } },
      options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
    return h("label", {}, label, select);
  }

  function controls(some, names, query, redraw, further = []) {
    const filter = h("input", { type: "search", name: "q", value: query.get("q") ?? "", placeholder: "words, all must occur", "aria-keyshortcuts": "/",
      oninput: () => { query.set("q", filter.value); replaceQuery(query); redraw(); },
      onkeydown: (event) => { if (event.key === "Escape") { filter.value = ""; filter.dispatchEvent(new Event("input")); filter.blur(); } } });
    const selects = names.map((name) => {
      const found = new Map(some.map((cell) => [facet(cell, name), facetText(cell, name)]));
      if (found.size < 2 && !query.get(name)) return null;
      return choice(FACETS[name], name, [["", "all"], ...found], query, redraw);
    });
    const output = h("output", {});
    return [h("search", { class: "controls" }, h("label", {}, "Filter (press /)", filter), selects, further, output), output];
  }

  // Colours and marks of cells and regions: the colour is the error, the edge and the mark are the status; the text says both

  const EDGES = { bad: "fail", open: "doubt", deviates: "over" };
  const STEPS = [0.5, 1, 2, 4, 16];
  const step = (size) => `s${STEPS.filter((most) => size > most).length}`;
  // What is allowed fails nothing, whatever its status
  const toneOf = (one) => (tone(one.status) === "bad" && !(one.cell ?? one).fails ? "open" : tone(one.status));
  const level = (one) => [EDGES[toneOf(one)], one.ran ? step(one.size) : "none"].filter(Boolean).join(" ");
  const worstStatus = (group) => [...group].sort((a, b) => bySeverity(a.status, b.status))[0]?.status;
  // A remark stands before correct rounding: NaNs and zero signs may be excused where every number is right
  const mark = (group) => {
    const status = worstStatus(group);
    const allowed = status && tone(status) === "bad" && group.every((one) => toneOf(one) !== "bad");
    const glyph = data.looks[allowed ? "unjudged" : status]?.[1];
    return glyph ? `${glyph} ` : group.some((one) => one.remark) ? "† " : exact(group) ? "✓ " : "";
  };
  const exact = (group) => group.some((one) => one.ran) && group.every((one) => !one.ran || (one.wrong === 0 && one.status === "passed"));
  const LEGEND = [...["at most 0.5 ulp", "at most 1", "at most 2", "at most 4", "at most 16", "more than 16 ulp"].map((text, i) => [`s${i}`, ["0.5", "0.8", "1.7", "3.2", "9.1", "240"][i], text]),
    ["fail", "✕ 240", "failed"], ["doubt", "◇ 3.2", "suspect, unbounded, unjudged, or allowed to stand"], ["over", "≠ 240", "deviates: exceeds its bound, and the ledger says why and how far"],
    ["remark", "†", "passed with a remark, see below"],
    ["exact", "✓", "every element correctly rounded"], ["none", "not run", "not run, with a reason below"]];
  const inLegend = (kind, cell) => level(cell).split(" ").includes(kind) || (kind === "exact" && exact([cell])) || (kind === "remark" && cell.remark);

  // More important first: a failure, then the larger error, then the larger share of the bound
  const TONES = ["dim", "good", "deviates", "open", "bad"];
  const rank = (one) => [TONES.indexOf(toneOf(one)), one.ran ? 1 : 0, one.size ?? -1, one.part ?? -1];
  function worse(a, b) {
    const [x, y] = [rank(a), rank(b)];
    for (let i = 0; i < x.length; i++) if (x[i] !== y[i]) return y[i] - x[i];
    return a.number - b.number;
  }
  const most = (some, key) => some.reduce((best, cell) => ((cell[key] ?? -1) > (best[key] ?? -1) ? cell : best));
  const survivors = (cell) => (cell.candidates ?? []).filter(([, missed]) => missed === 0).map(([name]) => name);
  // A formula may hold a slash itself: several are told apart by their own elements. `shown`: how many of them
  function formulaNode(cell, shown = Infinity) {
    const found = survivors(cell);
    if (found.length < 2) return h("code", {}, cell.formula);
    return [...found.slice(0, shown), ...(found.length > shown ? [null] : [])].map((name, i) =>
      h("div", {}, i ? "or " : "", name === null ? `${found.length - shown} more` : h("code", {}, name)));
  }
  const statusNode = (status, predicted) => predicted ? h("span", { class: "dim" }, `≈ ${status}`) : h("span", { class: { deviates: "known" }[tone(status)] ?? tone(status) }, data.looks[status][1] ? `${data.looks[status][1]} ` : "", status);
  const ledgerText = (ids) => (ids.length ? ` [ledger: ${ids.join(", ")}]` : "");

  // Tables. A column: title, text(row), and perhaps order(row) to sort by, node(row), href(row), right, wide, name

  function table(rows, shown, query, redraw, caption) {
    const wanted = query.get("sort") ?? "";
    const by = shown.find((column) => column.title === wanted.replace(/^-/, ""));
    if (by?.order) {
      const sign = wanted.startsWith("-") ? -1 : 1;
      rows = rows.map((row, i) => [by.order(row), i, row]).sort(([a, i], [b, j]) => {
        if (a === b) return i - j;
        if (a === null || b === null) return a === null ? 1 : -1; // what has no value stays at the end
        return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
      }).map(([, , row]) => row);
    }
    const heading = (column) => {
      const state = column === by ? (wanted.startsWith("-") ? "descending" : "ascending") : null;
      const flip = () => {
        const down = state === null ? Boolean(column.right) : state === "ascending";
        query.set("sort", (down ? "-" : "") + column.title);
        replaceQuery(query);
        redraw();
        [...document.querySelectorAll("th button")].find((button) => button.dataset.sort === column.title)?.focus();
      };
      return h("th", { scope: "col", role: "columnheader", class: column.right ? "right" : null, "aria-sort": state },
        column.order ? h("button", { type: "button", "data-sort": column.title, onclick: flip }, column.title) : column.title);
    };
    const line = (row) => {
      const href = shown[0].href?.(row);
      return h("tr", { role: "row", "data-href": href }, shown.map((column, i) => {
        const text = column.text(row);
        const inner = column.href ? h("a", { href: column.href(row) }, text) : column.node ? column.node(row) : text;
        const kind = [column.right && "right number", column.wide && "wide", column.name && "name", column.nowrap && "number", (text === "-" || text === "") && "empty"].filter(Boolean).join(" ");
        return i === 0 ? h("th", { scope: "row", role: "rowheader", class: kind || null }, inner)
          : h("td", { role: "cell", class: kind || null, "data-label": column.title }, inner);
      }));
    };
    const body = h("tbody", { role: "rowgroup" }, rows.slice(0, SHOWN).map(line));
    const node = h("table", { class: "rows", role: "table" }, caption ? h("caption", {}, caption) : null,
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, shown.map(heading))), body);
    const more = rows.length > SHOWN && h("p", { class: "more" }, `${SHOWN} of ${grouped(rows.length)} rows. `, h("button", { type: "button", onclick: (event) => {
      body.append(...rows.slice(SHOWN).map(line));
      event.target.parentNode.remove();
    } }, "Show all"));
    return [h("div", { class: "scroll" }, node), more];
  }

  function cellColumns(some) {
    const differ = (name) => new Set(some.map((cell) => facet(cell, name))).size > 1;
    const number = (title, order) => ({ title, right: true, text: (cell) => cell[title], order });
    const text = (title, extra = {}) => ({ title, text: (cell) => cell[title], order: (cell) => cell[title], ...extra });
    const tallied = (title) => number(title, (cell) => (cell[title] === "-" ? null : Number(cell[title])));
    return [
      text("lowering", { href: cellHref, name: true }),
      many.device && differ("device") && { title: "device", name: true, text: (cell) => cell.device.short, order: (cell) => cell.device.short },
      differ("dtype") && text("dtype"),
      differ("scalars") && text("scalars"),
      differ("output") && text("output"),
      differ("spelling") && text("spelling", { name: true }),
      differ("slug") && { title: "inputs", text: (cell) => cell.among, order: (cell) => cell.inputs, nowrap: true },
      { title: "status", nowrap: true, text: (cell) => cell.status, order: (cell) => cell.status, node: (cell) => statusNode(cell.status, cell.device.predicted) },
      { title: "other regions", wide: true, text: (cell) => apart(cell).map(({ name, status }) => `${name} ${status}`).join(" ") || "-", node: (cell) => apart(cell).map(regionNode) },
      { ...number("error", (cell) => cell.size), node: (cell) => h("span", { class: `chip ${level(cell)}` }, mark([cell]), cell.error) },
      text("metric"), number("bound", (cell) => cell.limit?.[0] ?? null), number("share", (cell) => cell.part),
      number("misrounded", (cell) => cell.wrong), number("max ulp", (cell) => cell.ulp),
      tallied("closer"), tallied("farther"), tallied("tied"),
      data.baseline.path && { title: "baseline", text: (cell) => cell.verdict?.[0] ?? "-", order: (cell) => cell.verdict?.[0] ?? null, node: (cell) => (cell.verdict ? statusNode(cell.verdict[0]) : "-") },
      text("formula", { wide: true, node: (cell) => formulaNode(cell, 2) }),
      { title: "batch invariant", wide: true, text: (cell) => cell.batch, order: (cell) => cell.batch },
    ].filter((column) => column && some.some((cell) => !["", "-"].includes(column.text(cell))));
  }

  // Regions that are told beside a cell's headline: those that did not pass, and those of a larger error than `normal`
  function apart(cell) {
    const normal = cell.regions.find(({ name }) => name === "normal");
    return cell.regions.filter((one) => one.status !== "passed" || (normal && one.metric === normal.metric && one.size > normal.size && one.error !== normal.error))
      .sort((a, b) => bySeverity(a.status, b.status) || (b.name === "normal") - (a.name === "normal"));
  }
  const regionNode = (one) => h("div", { class: `chip ${level(one)}` }, `${mark([one])}${one.name}: ${one.status === "passed" ? "" : `${one.status}, `}${one.error} ${one.metric}${one.share === "-" ? "" : `, ${one.share}`}`);
  const regionText = (one) => `in ${one.name}: ${one.reason || `${one.error} ${one.metric} of ${one.bound}`}${ledgerText(one.ledger)}`;

  // Overview

  function overview(query) {
    const results = h("div", {});
    const regions = regionNames.length ? [choice("Region", "region", [["", "normal, and what is worst"], ...regionNames.map((name) => [name, name])], query, () => redraw())] : [];
    const show = [["", "error in ulp"], ["share", "share of the bound"], ["misrounded", "misrounded share"], ...(data.baseline.path ? [["baseline", "against the baseline"]] : [])];
    const redraw = () => {
      const some = matching(cells, query);
      output.textContent = `${count(some.length, "cell")} of ${grouped(cells.length)}`;
      results.replaceChildren(...failures(some), ...deviations(some), ...matrix(some, query), ...baselineSection(some, null), ...remarks(some));
    };
    const [bar, output] = controls(cells, ["dtype", "device", "status"], query, redraw, [choice("Show", "show", show, query, () => redraw()), ...regions]);
    draw("Overview", [], [h("h1", { tabindex: -1 }, `Accuracy of ${count(new Set(columns.kernel).size, "kernel")} on ${count(devices.length, "device")}`), totals(cells, data.reports.reduce((sum, report) => sum + report.missing, 0)), bar, results, reports()]);
    redraw();
  }

  function totals(some, missing = 0) {
    const predicted = some.filter((cell) => cell.device.predicted && cell.ran); // never among what was measured
    some = some.filter((cell) => !cell.device.predicted);
    const ran = some.filter((cell) => cell.ran);
    const counts = new Map(data.counted.map((name) => [name, 0]));
    for (const cell of some) counts.set(countedAs(cell), counts.get(countedAs(cell)) + 1);
    counts.set("not run", counts.get("not run") + missing);
    const classes = { failed: "bad", deviate: "known", allowed: "open", suspect: "open", unbounded: "open", unjudged: "open" };
    const pairs = [...[...counts].filter(([name, number]) => number || ["passed", "failed", "not run"].includes(name)),
      ["undecided elements", ran.reduce((sum, cell) => sum + counted(cell, "undecided"), 0)],
      ["elements checked", ran.reduce((sum, cell) => sum + cell.inputs, 0)],
      ...(predicted.length ? [["≈ predicted cells", predicted.length]] : [])];
    return h("dl", { class: "totals" }, pairs.map(([name, number]) => h("div", {}, h("dt", {}, name),
      h("dd", { class: number ? classes[name] ?? null : null }, grouped(number)))));
  }

  function matrix(some, query) {
    if (!some.length) return [h("p", { class: "notice" }, "No cell matches the filter.")];
    const rows = new Map();
    const heads = new Map(devices.map((device) => [device, new Set()]));
    for (const cell of some) {
      heads.get(cell.device).add(cell.lowering);
      if (!rows.has(cell.kernel)) rows.set(cell.kernel, new Map());
      const key = `${cell.device.id} ${cell.lowering}`;
      const row = rows.get(cell.kernel);
      if (!row.has(key)) row.set(key, []);
      row.get(key).push(cell);
    }
    // a lowering that ran for no kernel has its reason below, and no column
    const used = [...heads].map(([device, names]) => [device, [...names].filter((name) => [...rows.values()].some((row) =>
      (row.get(`${device.id} ${name}`) ?? []).some((cell) => cell.status !== "not-run")))]).filter(([, names]) => names.length);
    const shown = query.get("show") ?? "", region = query.get("region") ?? "";
    const linked = Object.fromEntries([...query].filter(([name]) => name === "dtype" || name === "q" || name === "status"));
    const figure = (ran) => (shown === "share" ? most(ran, "part").share : shown === "misrounded" ? most(ran, "wrong").misrounded : most(ran, "size").error);
    const field = (group, device, name, kernel) => {
      if (!group) return h("td", { role: "cell", class: "absent" }, h("span", { "aria-hidden": "true" }, "·"), h("span", { class: "hidden" }, "not in the reports"));
      const judged = region ? group.flatMap((cell) => cell.regions.filter((one) => one.name === region)) : group;
      if (!judged.length) return h("td", { role: "cell", class: "absent" }, "–", h("span", { class: "hidden" }, `no element in ${region}`));
      const ran = judged.filter((one) => one.ran);
      const head = [...judged].sort(worse)[0], largest = ran.length ? most(ran, "size") : head;
      const text = shown === "baseline" ? group.map((cell) => cell.verdict?.[0]).filter(Boolean).sort(bySeverity)[0] ?? "–"
        : ran.length ? figure(ran) : head.status.replace("-", " ");
      const title = `${kernel}, ${name} on ${device.label}: ${head.status}${head.ran ? `; at most ${largest.error} ${largest.metric} of ${largest.bound}` : ""}${head.reason ? `; ${head.reason}` : ""}; ${count(group.length, "cell")}`;
      // the other regions, each with the colour of its largest error
      const parts = region ? [] : regionNames.map((one) => group.flatMap((cell) => cell.regions.filter((other) => other.name === one && one !== "normal"))).filter((some) => some.length);
      return h("td", { role: "cell", class: [EDGES[toneOf(head)], ran.length ? step(largest.size) : "none"].filter(Boolean).join(" ") }, h("a", { href: kernelHref(kernel, { ...linked, device: device.id, lowering: name }), title },
        h("span", { class: "label" }, `${many.device ? `${device.short} ` : ""}${name} `), ran.length || tone(head.status) === "bad" ? mark(judged) : "", text,
        parts.length ? h("span", { class: "regions", "aria-hidden": "true" }, parts.map((some) => h("i", { class: [...some].sort(worse).slice(0, 1).map((one) => EDGES[toneOf(one)] ?? "").concat(step(most(some, "size").size)).join(" "), title: `${some[0].name}: ${most(some, "size").error} ${most(some, "size").metric}` }))) : null,
        EDGES[toneOf(head)] ? h("span", { class: "hidden" }, ` ${head.status}`) : null));
    };
    const metrics = (row) => [...new Set([...row.values()].flat().filter((cell) => cell.ran).map((cell) => cell.metric))].filter((name) => name !== "ulp");
    // Kernels of a device whose lowerings fit side by side share a table
    const tables = used.flatMap(([device, names]) => {
      const parts = [];
      for (const [kernel, row] of rows) {
        const own = names.filter((name) => row.has(`${device.id} ${name}`));
        if (!own.length) continue;
        let part = parts.find(({ columns }) => new Set([...columns, ...own]).size <= WIDEST || own.every((name) => columns.has(name)));
        if (!part) parts.push(part = { columns: new Set(), mine: [] });
        own.forEach((name) => part.columns.add(name));
        part.mine.push([kernel, row]);
      }
      return parts.map(({ columns, mine }, i) => {
        const shownNames = names.filter((name) => columns.has(name));
        return h("table", { class: "matrix", role: "table" },
          h("caption", { class: i ? "hidden" : null }, h("span", { class: "device" }, device.label), h("span", { class: "hidden" }, ": kernels by lowering; each field has the largest error of the cells that it stands for")),
          h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, h("td", {}), shownNames.map((name) => h("th", { scope: "col", role: "columnheader" }, name)))),
          h("tbody", { role: "rowgroup" }, mine.map(([kernel, row]) => h("tr", { role: "row" },
            h("th", { scope: "row", role: "rowheader" }, h("a", { href: kernelHref(kernel, linked) }, kernel), metrics(row).map((name) => h("span", { class: "dim" }, ` ${name}`))),
            shownNames.map((name) => field(row.get(`${device.id} ${name}`), device, name, kernel))))));
      });
    });
    return [h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Matrix of kernels and lowerings" }, tables),
      h("ul", { class: "legend", "aria-label": "Legend" }, LEGEND.filter(([kind]) => some.some((cell) => inLegend(kind, cell))).map(([kind, text, meaning]) =>
        h("li", {}, h("span", { class: kind }, text), meaning)))];
  }

  const bySeverity = (a, b) => data.severity.indexOf(a) - data.severity.indexOf(b);
  const label = (cell) => [cell.kernel, cell.lowering, cell.spelling, cell.device.short, cell.dtype, cell.scalars, cell.output].filter(Boolean).join(" ");
  const replayOf = (cell, element) => cell.device.assignments + (element[8] ?? cell.replay[0] + (element[0].length ? `--input=${element[0].join(",")}` : cell.replay[1] + element[7] + cell.replay[2]));

  function listed(title, items, draw, first = 20) {
    if (!items.length) return [];
    const list = h("ul", { class: "list" }, items.slice(0, first).map(draw));
    const more = items.length > first && h("p", { class: "more" }, h("button", { type: "button", onclick: (event) => {
      list.append(...items.slice(first).map(draw));
      event.target.parentNode.remove();
    } }, `Show all ${items.length}`));
    return [h("section", {}, h("h2", {}, title), list, more)];
  }

  // Each region that is at fault has a line of its own, so that none hides another
  const faults = (cell) => apart(cell).filter((one) => one.status !== "passed");
  const faultNode = (one) => h("div", {}, statusNode(one.status), ` ${regionText(one)}`, one.worst.length ? command(replayOf(one.cell, one.worst[0])) : null);

  function failures(some) {
    const failed = some.filter((cell) => cell.fails).sort((a, b) => bySeverity(a.status, b.status) || worse(a, b));
    const among = data.counted.map((name) => [name, failed.filter((cell) => !cell.device.predicted && countedAs(cell) === name).length]);
    const told = [...among, ["predicted", failed.filter((cell) => cell.device.predicted).length]].filter(([, number]) => number);
    return listed(`Failing: ${told.map(([name, number]) => `${grouped(number)} ${name}`).join(", ")}`, failed, (cell) => h("li", {}, statusNode(cell.status, cell.device.predicted), " ",
      h("a", { href: cellHref(cell) }, label(cell)), cell.regions.length ? cell.beside.map(([status, text]) => h("div", {}, statusNode(status), ` ${text}`)) : `: ${cell.reason}`,
      faults(cell).length ? faults(cell).map(faultNode) : cell.worst.length ? command(replayOf(cell, cell.worst[0])) : null), FIRST);
  }

  function deviations(some) {
    const groups = new Map(); // by region and entries of the ledger; without regions by the reason
    for (const cell of some) {
      const found = cell.regions.filter((one) => one.status === "deviates");
      for (const one of found.length ? found : cell.status === "deviates" ? [cell] : []) {
        const key = JSON.stringify(one === cell ? [cell.reason] : [one.name, one.ledger]);
        groups.set(key, [...(groups.get(key) ?? []), one]);
      }
    }
    const number = new Set([...groups.values()].flat().map((one) => one.number)).size;
    return listed(`Deviates: ${count(number, "cell")}`, [...groups.values()], (group) => {
      const one = [...group].sort(worse)[0];
      const cell = one.cell ?? one;
      const mine = group.map((other) => other.cell ?? other);
      const some_ = (name) => [...new Set(mine.map((other) => (name === "device" ? other.device.short : other[name])))].join(" ");
      return h("li", {}, statusNode("deviates"), ` ${one.cell ? regionText(one) : one.reason} `,
        h("span", { class: "dim" }, `${some_("kernel")}; ${some_("lowering")}; ${some_("device")}; ${some_("dtype")}; ${count(group.length, "cell")}; the largest: `),
        h("a", { href: cellHref(cell) }, label(cell)), one.worst.length ? command(replayOf(cell, one.worst[0])) : null);
    }, FIRST);
  }

  function baselineSection(some, kernel) {
    if (!data.baseline.path) return [];
    const differing = some.filter((cell) => cell.verdict && cell.verdict[0] !== "passed").sort((a, b) => bySeverity(a.verdict[0], b.verdict[0]) || a.number - b.number);
    const missing = new Map(); // by status, device and reason
    for (const [status, name, device, reason, replay] of kernel === null ? data.baseline.missing : []) {
      const key = JSON.stringify([status, device, reason]);
      if (!missing.has(key)) missing.set(key, { status, device, reason, names: [] });
      missing.get(key).names.push([name, replay]);
    }
    const total = differing.length + data.baseline.missing.length * (kernel === null);
    const list = listed(`Against the baseline ${data.baseline.path}: ${count(total, "difference")}`, [...differing, ...missing.values()], (item) => {
      if (item.verdict) {
        const [status, reason, replay] = item.verdict;
        return h("li", {}, statusNode(status), " ", h("a", { href: cellHref(item) }, label(item)), `: ${reason}`, replay ? command(replay) : null);
      }
      return h("li", {}, statusNode(item.status), ` ${count(item.names.length, "cell")} on ${item.device}: ${item.reason}`,
        unfolded("Which", () => item.names.map(([name, replay]) => h("div", {}, name, command(replay)))));
    });
    const notes = [data.baseline.line, ...data.baseline.notices].map((text) => h("p", { class: "dim" }, text));
    return list.length ? [...list, ...notes] : [h("section", {}, h("h2", {}, `Against the baseline ${data.baseline.path}: no difference`), notes)];
  }

  function remarks(some) {
    const groups = new Map();
    for (const cell of some) {
      if (!cell.reason || cell.fails || cell.status === "deviates") continue;
      const text = cell.allowance ? `${cell.status}, allowed by ${cell.allowance}: ${cell.reason}` : cell.reason;
      const key = JSON.stringify([cell.status, text]);
      if (!groups.has(key)) groups.set(key, { text, group: [] });
      groups.get(key).group.push(cell);
    }
    const one = (group, name) => [...new Set(group.map((cell) => (name === "device" ? cell.device.short : cell[name])))].join(" ");
    const draw = ({ text, group }) => h("li", {}, `${text}: `,
      [...new Set(group.map((cell) => cell.kernel))].map((kernel, i) => [i ? " " : "", h("a", { href: kernelHref(kernel, { status: group[0].status, ...(group[0].ran ? { q: text } : {}) }) }, kernel)]),
      h("span", { class: "dim" }, `; ${one(group, "lowering")}; ${one(group, "device")}; ${one(group, "dtype")}; ${count(group.length, "cell")}`));
    const told = [...groups.values()];
    const notes = data.reports.flatMap((report) => report.notes.map((note) => h("li", {}, `${data.reports.length > 1 ? `${report.file}: ` : ""}${note}`)));
    const absent = [...told.filter(({ group }) => !group[0].ran), ...notes];
    return [...listed("Passed with a remark, or allowed", told.filter(({ group }) => group[0].ran), draw),
      ...(absent.length ? [h("section", { class: "absent" }, unfolded(`Not run: ${count(absent.length, "reason")}`, () => listed("Not run", absent, (item) => (item.group ? draw(item) : item))))] : [])];
  }

  function reports() {
    return h("section", {}, h("h2", {}, "Reports and devices"), data.reports.map((report) => [
      report.lacking.map((text) => h("p", { class: "notice" }, `${report.file}: ${text}`)),
      facts([["report", `${report.file}: ${count(report.cells, "cell")}, profile ${report.profile}, seed ${report.seed}`], ["command", report.command ? command(report.command) : ""]])]),
    devices.map((device) => facts([["device", device.label], ["facts", device.facts.join(" · ")], ["from", device.files.join(", ")]])));
  }

  // Kernel

  function kernelPage(kernel, query) {
    const mine = cells.filter((cell) => cell.kernel === kernel);
    if (!mine.length) return missing(`No kernel ${kernel} in these reports.`);
    const results = h("div", {});
    const redraw = () => {
      const some = matching(mine, query).sort(worse);
      output.textContent = `${count(some.length, "cell")} of ${grouped(mine.length)}`;
      const ran = some.filter((cell) => cell.ran);
      plots.forget();
      const shown = query.get("status") === "not-run" ? some : some.filter((cell) => cell.status !== "not-run");
      results.replaceChildren(...failures(some), ...deviations(some),
        h("section", { id: "cells" }, shown.length ? table(shown, cellColumns(shown), query, redraw) : h("p", { class: "notice" }, some.length ? "No matching cell ran." : "No cell matches the filter."),
          shown.length < some.length ? h("p", { class: "dim" }, `${count(some.length - shown.length, "cell")} not run, for the reasons below: `, h("a", { href: kernelHref(kernel, { status: "not-run" }) }, "list them")) : null),
        ...regionSection(ran, query, redraw),
        ...(ran.length ? [plotSection(ran, query, redraw), worstSection(ran), formulaSection(ran), rightSection(ran)] : []),
        ...baselineSection(some, kernel), ...remarks(some));
    };
    // narrow screens have no column headings to sort by
    const orders = cellColumns(mine).filter((column) => column.order).flatMap(({ title, right }) => (right ? [[`-${title}`, `${title}, largest first`], [title, `${title}, smallest first`]] : [[title, title]]));
    const sort = choice("Sort", "sort", [["", "worst first"], ...orders], query, () => redraw());
    sort.className = "narrow";
    const [bar, output] = controls(mine, ["device", "lowering", "dtype", "scalars", "spelling", "output", "status"], query, redraw, [sort]);
    const sections = [["plots", "Error by binade"], ["worst", "Worst inputs"], ["formulas", "Formulas"], ["right", "Who is right"]];
    draw(kernel, [], [h("h1", { tabindex: -1 }, kernel), totals(mine),
      h("ul", { class: "sections", "aria-label": "On this page" }, sections.map(([id, text]) => h("li", {}, h("a", { href: location.hash, onclick: (event) => {
        event.preventDefault();
        const target = document.getElementById(id);
        target?.scrollIntoView();
        target?.querySelector("h2")?.focus();
      } }, text)))), bar, results]);
    redraw();
  }

  const caseOf = (cell) => [cell.dtype, cell.scalars, cell.output, many.spelling ? cell.spelling : "", cell.among].filter(Boolean).join(", ");

  // What has the same values for several lowerings is one series that names them all.
  function seriesOf(some, column) {
    const found = new Map();
    for (const cell of some) {
      const key = columns[column][cell.number];
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(cell);
    }
    return [...found.values()].map((group) => {
      const places = new Map();
      for (const cell of group) places.set(cell.device.short, [...(places.get(cell.device.short) ?? []), cell.lowering]);
      const name = [...places].map(([device, names]) => `${many.device ? `${device}: ` : ""}${names.join(" = ")}`).join("; ");
      return { name, cell: group[0], group };
    });
  }

  function plotSection(ran, query, redraw) {
    const cases = new Map();
    for (const cell of ran) cases.set(caseOf(cell), [...(cases.get(caseOf(cell)) ?? []), cell]);
    const names = [...cases.keys()];
    const preferred = names.find((name) => name.startsWith("float32") && cases.get(name).some((cell) => cell.binades >= 0)) ?? names[0];
    const chosen = cases.has(query.get("case")) ? query.get("case") : preferred;
    const pick = names.length > 1 && h("div", { class: "controls" }, choice("Case", "case", names.map((name) => [name, name]), query, redraw, chosen));
    return h("section", { id: "plots" }, h("h2", { tabindex: -1 }, "Error by binade"), pick, plotsOf(cases.get(chosen), chosen));
  }

  function plotsOf(some, title) {
    const withBinades = seriesOf(some.filter((cell) => cell.binades >= 0), "binades");
    const withBins = seriesOf(some.filter((cell) => cell.ran), "numbers");
    const left = some.filter((cell) => cell.binades < 0).length;
    return [
      left ? h("p", { class: "dim" }, `${left === some.length ? "No cell has" : `${count(left, "cell")} without`} statistics by binade: a run keeps them for the default spelling, a recorded file leaves them out.`) : null,
      withBinades.length ? binadeFigures(withBinades, title) : null,
      withBins.length ? histogramFigure(withBins, title, withBinades.map(({ name }) => name).join() !== withBins.map(({ name }) => name).join()) : null];
  }

  // Statistics by binade are half of the data and only drawn: unpacked when the first plot needs them
  let drawn = null;
  const allBinades = () => (drawn ??= unpacked("binades").json());

  function binadeRows(all, { name, cell }) {
    const [exponents, measured, misrounded, maximum, bias] = all[cell.binades];
    return exponents.map((exponent, i) => ({ name, exponent, measured: measured[i], misrounded: misrounded[i],
      share: misrounded[i] / measured[i], maximum: maximum[i], bias: bias[i] }));
  }

  function binadeFigures(series, title) {
    const limits = new Set(series.flatMap(({ group }) => group.map((cell) => (cell.limit && cell.limit[1] === "ulp" ? cell.limit[0] : null))));
    const node = h("figure", {}, h("figcaption", {}, `${title}. What agrees in all binades is drawn once. Counted are finite errors of elements in region normal, flushed ones apart.`));
    allBinades().then((all) => {
      const rows = series.map((one) => binadeRows(all, one));
      const shown = [["series", "name"], ["exponent", "exponent"], ["elements", "measured"], ["max ulp", "maximum"], ["misrounded", "misrounded"], ["bias ulp", "bias"]]
        .map(([text, key], i) => ({ title: text, right: i > 0, name: i === 0, text: (row) => String(row[key]) }));
      const numbers = unfolded("The numbers", () => table(rows.flat(), shown, new URLSearchParams(), () => {}, "Maximum rounded up to 4 digits, bias to 3"));
      if (rows.some((one) => one.some((row) => row.maximum >= 1024))) node.firstChild.append(" Errors above 1024 ulp count as 1024.");
      put(node, [plots.binades(rows.flat(), series.map(({ name }) => name), limits.size === 1 ? [...limits][0] : null, title), numbers]);
    }).catch((error) => put(node, h("p", { class: "notice" }, `The statistics by binade could not be read: ${error.message}`)));
    return node;
  }

  function histogramFigure(series, title, legend) {
    const rows = series.map(({ name, cell }) => {
      const [bounds, counts] = cell.histogram;
      const edges = bounds.split("|").filter(Boolean);
      const bins = edges.map((edge, i) => ({ name, bin: i ? `${edges[i - 1].replace("<=", "")} – ${edge.replace("<=", "")}` : edge.replace("<=", "≤ "), count: counts[i] - (i ? counts[i - 1] : 0) }));
      const beyond = counted(cell, "clamped");
      return beyond ? [...bins, { name, bin: `> ${edges.at(-1).replace("<=", "")}`, count: beyond }] : bins;
    });
    const all = [...new Set(rows.flat().map((row) => row.bin))];
    const last = Math.max(...rows.flat().filter((row) => row.count).map((row) => all.indexOf(row.bin)));
    const kept = all.slice(0, last + 1);
    if (!kept.length) return null;
    const column = (text, i) => ({ title: text, right: i > 0, name: i === 0, text: (row) => (i ? String(row.find((bin) => bin.bin === text)?.count ?? 0) : row[0].name) });
    const node = h("figure", {}, h("h3", {}, "Histogram"), h("figcaption", {}, `Elements by error in ulp, on a logarithmic scale. ${legend ? `${title}.` : "Colours as above."}`));
    node.append(plots.histogram(rows.flat().filter((row) => kept.includes(row.bin)), series.map(({ name }) => name), kept, title, legend),
      unfolded("The numbers", () => table(rows, ["series", ...kept].map(column), new URLSearchParams(), () => {})));
    return node;
  }

  function worstTable(items, named) {
    const shown = [
      ...(named ? [{ title: "cell", name: true, text: ([cell]) => [cell.lowering, many.device ? cell.device.short : "", cell.dtype, cell.scalars, cell.output].filter(Boolean).join(" "), href: ([cell]) => cellHref(cell) }] : []),
      { title: "inputs", name: true, text: ([, one]) => one[0].join(" ") || `element ${one[7]}`, node: ([, one]) => (one[0].length ? one[0].map((text, i) => [i ? " " : "", h("code", {}, text)]) : `element ${one[7]}`) },
      { title: "output", nowrap: true, text: ([, one]) => one[1], node: ([, one]) => h("code", {}, one[1]) },
      { title: "truth", nowrap: true, text: ([, one]) => one[2], node: ([, one]) => h("code", { title: one[3] ? `correctly rounded: ${one[3]}` : null }, one[2]) },
      { title: "ulp", right: true, text: ([, one]) => one[4] },
      ...(items.some(([, one]) => one[5] !== "-") ? [{ title: "of its bound", right: true, text: ([, one]) => one[5] }] : []),
      ...(items.some(([, one]) => one[6]) ? [{ title: "class", text: ([, one]) => one[6] || "-" }] : []),
      { title: "replay", wide: true, text: ([cell, one]) => replayOf(cell, one), node: ([cell, one]) => command(replayOf(cell, one)) },
    ];
    return table(items, shown, new URLSearchParams(), () => {});
  }

  function worstSection(ran) {
    const items = ran.filter((cell) => cell.worst.length).map((cell) => [cell, cell.worst[0]]);
    return h("section", { id: "worst" }, h("h2", { tabindex: -1 }, "Worst inputs"),
      items.length ? [h("p", { class: "dim" }, "Of each cell the element of the largest error in ulp, of a composite kernel that of the largest share of its bound; a cell's page has the others. The largest error comes first."), worstTable(items, true)] : h("p", {}, "None recorded."));
  }

  function formulaSection(ran) {
    const order = [...new Set([...ran].sort((a, b) => a.number - b.number).map((cell) => cell.lowering))];
    const here = devices.filter((device) => ran.some((cell) => cell.device === device));
    const found = new Map();
    for (const cell of ran) {
      const key = JSON.stringify([cell.lowering, cell.dtype, cell.scalars, many.spelling ? cell.spelling : "", cell.output]);
      if (!found.has(key)) found.set(key, { cell, by: new Map() });
      const { by } = found.get(key);
      by.set(cell.device, [...(by.get(cell.device) ?? []), cell]);
    }
    // Of several domains each has its own, where they do not agree
    const agree = (some) => new Set(some.map((cell) => cell.formula)).size < 2;
    const told = (some) => (agree(some) ? some[0]?.formula ?? "" : some.map((cell) => `${cell.formula} (${cell.among})`).join("; "));
    const toldNode = (some) => (agree(some) ? some.slice(0, 1).map((cell) => formulaNode(cell)) : some.map((cell) => h("div", {}, formulaNode(cell), ` (${cell.among})`)));
    // dtypes with the same formulas on every device share a row
    const rows = new Map();
    for (const { cell, by } of found.values()) {
      const sides = here.map((device) => (by.get(device) ?? []).sort((a, b) => a.number - b.number));
      const key = JSON.stringify([cell.lowering, cell.scalars, many.spelling ? cell.spelling : "", cell.output, sides.map(told)]);
      if (!rows.has(key)) rows.set(key, { cell, sides, dtypes: [] });
      rows.get(key).dtypes.push(cell.dtype);
    }
    const shown = [
      { title: "lowering", name: true, text: ({ cell }) => cell.lowering },
      { title: "dtypes", text: ({ dtypes }) => [...new Set(dtypes)].join(" ") },
      { title: "scalars", text: ({ cell }) => cell.scalars },
      ...(many.spelling ? [{ title: "spelling", text: ({ cell }) => cell.spelling }] : []),
      ...(many.output ? [{ title: "output", text: ({ cell }) => cell.output }] : []),
      ...here.map((device, i) => ({ title: device.label, wide: true, text: ({ sides }) => told(sides[i]), node: ({ sides }) => toldNode(sides[i]) })),
      ...(here.length > 1 ? [{ title: "across devices", text: ({ sides }) => {
        const known = sides.filter((some) => some.length && told(some) !== "-");
        const texts = new Set(known.map(told));
        // where no candidate fits on any device, nothing is known of the two
        if (known.length < 2 || (texts.size === 1 && texts.has("none"))) return "-";
        const [first, ...others] = known.flat().map(survivors);
        return texts.size === 1 ? "same" : first.some((name) => others.every((other) => other.includes(name))) ? "may be the same" : "differ";
      } }] : []),
    ].filter((column) => [...rows.values()].some((row) => column.text(row)));
    return h("section", { id: "formulas" }, h("h2", { tabindex: -1 }, "Formulas"),
      h("p", { class: "dim" }, "The one candidate that reproduces every output bit; where there are several, all do; “none” of the candidates; “-” none were tried."),
      table([...rows.values()].sort((a, b) => order.indexOf(a.cell.lowering) - order.indexOf(b.cell.lowering) || a.cell.number - b.cell.number), shown, new URLSearchParams(), () => {}));
  }

  function rightSection(ran) {
    const compared = ran.filter((cell) => cell.closer !== "-");
    const differing = compared.filter((cell) => ["closer", "farther", "tied"].some((name) => cell[name] !== "0"));
    const node = h("section", { id: "right" }, h("h2", { tabindex: -1 }, "Who is right"));
    if (!compared.length) return put(node, h("p", {}, "Nothing was compared with eager."));
    node.append(h("p", { class: "dim" }, `Of the elements whose bits differ from eager's on the same device: closer to the truth than eager, farther, tied. ${count(compared.length - differing.length, "cell")} of ${compared.length} with eager's bits throughout.`));
    if (!differing.length) return node;
    const named = (cell) => [cell.lowering, many.device ? cell.device.short : "", cell.dtype, cell.scalars, cell.output, many.spelling ? cell.spelling : ""].filter(Boolean).join(" ");
    const drawn = differing.slice(0, 24);
    node.append(h("figure", {}, plots.right(drawn.map((cell) => ({ name: named(cell), ...Object.fromEntries(["closer", "tied", "farther"].map((name) => [name, Number(cell[name])])) })))));
    if (drawn.length < differing.length) node.append(h("p", { class: "dim" }, `The plot has ${drawn.length} of ${differing.length} cells, worst first; the table has all.`));
    const number = (title) => ({ title, right: true, text: (cell) => cell[title], order: (cell) => Number(cell[title]) });
    return put(node, table(differing, [{ title: "cell", name: true, text: named, href: cellHref }, { title: "elements", right: true, text: (cell) => String(cell.inputs) }, ...["closer", "farther", "tied"].map(number).map((column) => ({ ...column, order: undefined }))], new URLSearchParams(), () => {}));
  }

  // Regions

  function regionColumns(named) {
    const figure = (title, order) => ({ title, right: true, text: (one) => one[title], order });
    return [
      ...(named ? [{ title: "cell", name: true, text: ({ cell }) => [cell.lowering, many.device ? cell.device.short : "", cell.dtype, cell.scalars, cell.output, many.spelling ? cell.spelling : ""].filter(Boolean).join(" "), href: ({ cell }) => cellHref(cell) }] : []),
      { title: "region", nowrap: true, text: (one) => one.name, order: (one) => data.severity.indexOf(one.status) },
      { title: "elements", right: true, text: (one) => grouped(one.inputs), order: (one) => one.inputs },
      { title: "status", nowrap: true, text: (one) => one.status, order: (one) => one.status, node: (one) => statusNode(one.status) },
      { ...figure("error", (one) => one.size), node: (one) => h("span", { class: `chip ${level(one)}` }, mark([one]), one.error) }, { title: "metric", text: (one) => one.metric }, { title: "bound", right: true, text: (one) => one.bound },
      figure("share", (one) => one.part), figure("misrounded", (one) => one.wrong), figure("max ulp", (one) => one.ulp),
      ...data.failing_classes.map((name, i) => ({ title: name.replaceAll("_", "-"), right: true, text: (one) => (one.classes[i] ? grouped(one.classes[i]) : "-"), order: (one) => one.classes[i] })),
      { title: "unjudged", right: true, text: (one) => (one.unjudged ? grouped(one.unjudged) : "-"), order: (one) => one.unjudged },
      { title: "resolution", text: (one) => (one.resolution ? `${one.resolution[0]}; 90%: ${one.resolution[1]}` : "-") },
      { title: "reason", wide: true, text: (one) => `${one.reason}${ledgerText(one.ledger)}` || "-" },
      { title: "worst", wide: true, text: (one) => (one.worst.length ? one.worst[0][1] : "-"), node: (one) => (one.worst.length ? [h("code", {}, `${one.worst[0][0].join(" ") || `element ${one.worst[0][7]}`} → ${one.worst[0][1]}`), command(replayOf(one.cell, one.worst[0]))] : "-") },
    ];
  }
  const regionTable = (some, named, query, redraw) => table(some, regionColumns(named).filter((column) => some.some((one) => !["", "-"].includes(column.text(one)))), query, redraw);

  function regionSection(ran, query, redraw) {
    const present = regionNames.filter((name) => ran.some((cell) => cell.regions.some((one) => one.name === name)));
    if (!present.length) return [];
    const chosen = present.includes(query.get("region")) ? query.get("region") : "";
    const some = ran.flatMap((cell) => cell.regions).filter((one) => (chosen ? one.name === chosen : true)).sort(worse);
    const pick = h("div", { class: "controls" }, choice("Region", "region", [["", "all"], ...present.map((name) => [name, name])], query, redraw, chosen));
    return [h("section", { id: "regions" }, h("h2", { tabindex: -1 }, "Regions"),
      h("p", { class: "dim" }, "Each element lies in one, found from inputs and truth alone; each has its own figures, bound and status."), pick, regionTable(some, true, new URLSearchParams(), () => {}))];
  }

  // One cell

  function cellPage(cell) {
    const limit = cell.limit;
    const named = (list) => data.numbers.map((name, i) => [name.replaceAll("_", " "), list[i] === null ? "" : String(list[i])]);
    const others = cells.filter((other) => other !== cell && other.kernel === cell.kernel && caseOf(other) === caseOf(cell)).sort((a, b) => a.number - b.number);
    draw(cell.lowering, [[kernelHref(cell.kernel), cell.kernel]], [
      h("h1", { tabindex: -1 }, `${cell.kernel}: ${cell.lowering}`),
      h("p", {}, [cell.device.label, cell.dtype, cell.scalars, cell.output, cell.spelling, cell.domain].filter(Boolean).join(" · ")),
      facts([
        ["status", statusNode(cell.status, cell.device.predicted)], ["reason", cell.reason], ["ledger", cell.ledger.join(", ")], ["allowed by", cell.allowance],
        ["error", cell.ran ? h("span", { class: `chip ${level(cell)}` }, `${mark([cell])}${cell.error} ${cell.metric}`) : ""],
        ["bound", limit ? `${cell.bound} ${limit[1]}${limit[2] === "rounded" ? ", scalars rounded to the dtype" : ""}` : cell.ran ? "none" : ""],
        ["share of the bound", limit && cell.ran ? cell.share : ""],
        ["source of the bound", limit ? limit[3] : ""],
        ["misrounded", cell.ran ? `${cell.misrounded} of ${cell.inputs} elements` : ""],
        ["against eager", cell.closer === "-" ? "" : `${cell.closer} closer, ${cell.farther} farther, ${cell.tied} tied`],
        ["baseline", cell.verdict ? [statusNode(cell.verdict[0]), cell.verdict[1] ? `: ${cell.verdict[1]}` : "", cell.verdict[2] ? command(cell.verdict[2]) : ""] : ""],
        ["formula", cell.ran ? formulaNode(cell) : ""],
        ["batch invariant", cell.batch === "-" ? "" : cell.batch],
        ["other calls", cell.calls],
        ["launches", cell.repeats > 1 ? `${cell.repeats} on the same inputs, ${cell.distinct} different results` : ""],
        ["flags", Object.entries(cell.flags).map(([name, value]) => `${name} ${value}`).join(", ")],
        ["ftz", cell.ftz ? "declared" : ""],
        ["other bits by path", Object.entries(cell.paths).map(([name, number]) => `${name} ${number}`).join(", ")],
      ]),
      cell.regions.length ? h("section", { id: "regions" }, h("h2", {}, "Regions"), regionTable([...cell.regions].sort(worse), false, new URLSearchParams(), () => {})) : null,
      cell.worst.length ? h("section", {}, h("h2", {}, "Worst inputs"), worstTable(cell.worst.map((one) => [cell, one]), false)) : null,
      cell.ran ? h("section", {}, h("h2", {}, "Error by binade"), plotsOf([cell], caseOf(cell))) : null,
      cell.ran ? h("section", {}, h("h2", {}, "Elements and maxima"),
        facts(data.counts.map((name, i) => [name.replaceAll("_", " "), String(cell.counts[i])])),
        facts(named(cell.maxima)),
        cell.rounded ? [h("h3", {}, "Against the truth with the scalars rounded to the dtype"), facts([...named(cell.rounded[0]), ["misrounded", String(cell.rounded[1][data.counts.indexOf("misrounded")])]])] : null) : null,
      cell.candidates?.length ? h("section", {}, h("h2", {}, "Formulas tried"), table(cell.candidates, [
        { title: "formula", wide: true, text: ([name]) => name, node: ([name]) => h("code", {}, name) },
        { title: "elements it misses", right: true, text: ([, number]) => String(number) },
        { title: "witness", wide: true, text: ([, , witness]) => witness || "-", node: ([, , witness]) => h("code", {}, witness || "-") }], new URLSearchParams(), () => {})) : null,
      cell.properties.length ? h("section", {}, h("h2", {}, "Properties"), table(cell.properties, [
        { title: "property", name: true, text: ([name]) => name }, { title: "violations", right: true, text: ([, bad]) => String(bad) },
        { title: "elements", right: true, text: ([, , all]) => String(all) }, { title: "witness", text: ([, , , witness]) => witness || "-", node: ([, , , witness]) => h("code", {}, witness || "-") }], new URLSearchParams(), () => {})) : null,
      others.length ? h("section", {}, h("h2", {}, "The same case elsewhere"), table(others, cellColumns(others), new URLSearchParams(), () => {}).flat()) : null,
      h("section", {}, h("h2", {}, "Provenance"), facts([
        ["digest of the outputs", h("code", {}, cell.digest)], ["digest of the inputs", h("code", {}, cell.inputsDigest)], ["digest of the source", cell.sourceDigest ? h("code", {}, cell.sourceDigest) : ""],
        ["chunks", cell.chunks ? String(cell.chunks) : ""], ["trusted", cell.trust.map((one) => h("div", {}, one))],
        ["time", cell.ran ? `kernel ${cell.kernel_s} s, check ${cell.check_s} s, ${cell.mp_elements} elements in multiprecision` : ""],
        ["device", cell.device.facts.join(" · ")], ["link", h("a", { href: cellHref(cell) }, decodeURI(cellHref(cell)))]])),
    ]);
  }

  const missing = (text) => draw("Not found", [], [h("h1", { tabindex: -1 }, "Not found"), h("p", {}, text), h("p", {}, h("a", { href: "#/" }, "All kernels"))]);

  // Navigation

  function draw(title, crumbs, nodes) {
    document.getElementById("main").replaceChildren(...nodes.flat(Infinity).filter(Boolean));
    const items = [["#/", "ulproof"], ...crumbs, [null, title]];
    document.getElementById("crumbs").replaceChildren(...items.map(([href, text]) => h("li", {}, href ? h("a", { href }, text) : h("span", { "aria-current": "page" }, text))));
    document.title = `${title} – ulproof`;
  }

  let visited = null;
  function show() {
    const { parts, query } = place();
    plots.forget();
    if (!parts[0]) overview(query);
    else if (parts[0] === "kernel") kernelPage(parts[1] ?? "", query);
    else if (parts[0] === "cell") {
      const wanted = address(parts.map((part) => (part === "~" ? "" : part)));
      const cell = cells.find((one) => one.kernel === parts[1] && cellHref(one) === wanted);
      if (cell) cellPage(cell);
      else missing("These reports have no such cell.");
    } else missing("There is no such page.");
    if (visited !== null) {
      document.querySelector("h1")?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    visited = location.hash;
  }
  addEventListener("hashchange", show);

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName);
    if (event.key === "/" && !typing) {
      const filter = document.querySelector("input[name=q]");
      if (filter) { event.preventDefault(); filter.focus(); filter.select(); }
    }
    if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !typing) {
      const row = document.activeElement?.closest("tr[data-href]");
      const next = event.key === "ArrowDown" ? row?.nextElementSibling : row?.previousElementSibling;
      if (next) { event.preventDefault(); next.querySelector("a").focus(); }
    }
  });
  document.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-href]");
    if (row && !event.target.closest("a, button, code") && getSelection().isCollapsed) location.hash = row.dataset.href;
  });

  const themes = ["auto", "light", "dark"];
  const toggle = document.getElementById("theme");
  const stored = () => { try { return localStorage.getItem("ulproof-theme"); } catch { return null; } };
  function setTheme(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    toggle.textContent = `Theme: ${theme}`;
    toggle.dataset.theme = theme;
    try { localStorage.setItem("ulproof-theme", theme); } catch { /* a file may have no storage */ }
  }
  toggle.addEventListener("click", () => setTheme(themes[(themes.indexOf(toggle.dataset.theme) + 1) % themes.length]));
  setTheme(themes.includes(stored()) ? stored() : "auto");

  show();
})();
