"use strict";
// Two runs side by side.

function comparePage() {
  const regions = report.regions;
  const both = regions.filter((r) => r.in === "both" && r.basis);
  const classNames = (r) => (r.basis === "mfu" ? LOST : TIME);
  const f = (r, key, side, text) => {
    const value = (key === "mfu" ? r.mfu : r.classes[key] || r.figures[key])[side];
    return figure(`${r.region}.${key}.${side}`, value, text(value));
  };
  const signed = (better, r, key) => {
    const value = (key === "mfu" ? r.mfu : r.classes[key]).change;
    const sign = value == null || Math.abs(value) < 0.0005 ? 0 : Math.sign(value) * better;
    return figure(`${r.region}.${key}.change`, value, points(value), "span", { class: sign > 0 ? "gain" : sign < 0 ? "loss" : null });
  };

  // Tokens per second, relative to A: what people want more of.
  const rate = (r) => { const t = r.figures.tokens_per_s; return t && t.a > 0 && t.b != null ? t.b / t.a - 1 : null; };
  const signedPercent = (v) => (v > 0 ? "+" : v < 0 ? "−" : "") + (Math.abs(v) * 100).toFixed(1) + " %";

  function bar(r, side) {
    const parts = CLASSES.map((c) => [c, r.classes[c][side]]);
    return stackedBar(r.basis === "mfu" ? [["mfu", r.mfu[side]], ...parts] : parts, classNames(r), `${r.region} in ${side.toUpperCase()}`);
  }

  function answers() {
    const knowsMfu = both.some((r) => r.basis === "mfu");
    return section("What changed", null, legend(knowsMfu ? ["mfu", ...CLASSES] : CLASSES, knowsMfu ? LOST : TIME), regions.slice(0, 12).map((r) =>
      el("div", { class: "answer", "data-region": r.region },
        el("div", { class: "head-cell" }, el("div", { class: "name" }, r.region),
          rate(r) != null ? el("div", { class: "big" }, signedPercent(rate(r)), el("span", {}, "token/s")) : null,
          r.mfu.change != null ? el("div", { class: rate(r) != null ? "" : "big" }, points(r.mfu.change), el("span", { class: "dim" }, " points of MFU"))
            : el("div", { class: "big unknown" }, r.in === "both" ? `MFU ${[r.mfu.a, r.mfu.b].every((v) => v == null || possible(v)) ? "unknown" : "suspect"} in one of them` : `only in ${r.in.toUpperCase()}`)),
        el("div", {}, r.basis ? ["a", "b"].map((side) => el("div", { class: "side" }, el("span", { class: "dim small" }, side.toUpperCase()), bar(r, side))) : null,
          el("p", { class: "words" }, r.words + ".")))));
  }

  function changes() {
    if (!both.some((r) => [r.mfu, ...Object.values(r.classes)].some((v) => Math.abs(v.change || 0) >= 0.0005))) return null;
    const make = () => ({ type: "bar", data: { labels: both.map((r) => r.region), datasets: ["mfu", ...CLASSES].map((k) => ({
      label: (both.some((r) => r.basis === "mfu") ? LOST : TIME)[k], backgroundColor: colour(k),
      data: both.map((r) => { const v = (k === "mfu" ? r.mfu : r.classes[k]).change; return v == null || (k === "mfu" && r.basis !== "mfu") ? 0 : v * 100; }) })) },
      options: { indexAxis: "y", scales: { x: axis("points, B − A", { stacked: true }), y: { stacked: true, grid: { display: false } } },
        plugins: { legend: { labels: { boxHeight: 12 } }, tooltip: { callbacks: { label: (item) => `${item.dataset.label} ${points(item.parsed.x / 100)}` } } } } });
    return section("Change by class", "What one class lost, another one or MFU gained: each row adds up to 0.", chart("change", "Change of each class in points", make).box);
  }

  function figures() {
    const pair = (title, key, text) => [{ title: title + " A", of: (r) => f(r, key, "a", text) }, { title: title + " B", of: (r) => f(r, key, "b", text) }];
    return section("Figures of both", "Changes in percentage points.", table([
      { title: "region", text: true, of: (r) => r.region }, ...pair("token/s", "tokens_per_s", (v) => scaled(v, "")),
      { title: "change", of: (r) => (rate(r) == null ? "–" : el("span", { class: rate(r) > 0.0005 ? "gain" : rate(r) < -0.0005 ? "loss" : null }, signedPercent(rate(r)))) }, ...pair("MFU", "mfu", percent),
      { title: "change", of: (r) => signed(1, r, "mfu") },
      ...CLASSES.map((c) => ({ title: c === "memcpy" ? "copies" : c, of: (r) => signed(-1, r, c) })),
      ...pair("each", "each_s", duration), ...pair("p50", "latency.p50_s", duration), ...pair("p99", "latency.p99_s", duration),
      ...pair("MBU", "mbu", percent), ...pair("instances", "instances", count),
    ], regions, { label: "figures of both runs", shown: 40 }));
  }

  function kernels() {
    const names = regions.filter((r) => r.kernels.length).map((r) => r.region);
    if (!names.length) return null;
    const place = el("div");
    const show = (name) => {
      const r = regions.find((x) => x.region === name);
      const change = (k) => (k.a_s != null && k.b_s != null ? k.b_s - k.a_s : null);
      const signedTime = (s) => (s == null ? "–" : s === 0 ? "0" : (s > 0 ? "+" : "−") + duration(Math.abs(s)));
      place.replaceChildren(table([
        { title: "kernel", text: true, class: "kernel", of: (k) => el("span", { title: k.name }, el("span", { class: "swatch", style: { background: `var(--${CLASS_OF[k.class]})` } }), shortKernel(k.name)), by: (k) => k.name }, { title: "class", text: true, of: (k) => k.class, by: (k) => k.class },
        { title: "A", of: (k) => duration(k.a_s), by: (k) => k.a_s }, { title: "B", of: (k) => duration(k.b_s), by: (k) => k.b_s },
        { title: "change", of: (k) => signedTime(change(k)), by: change }], r.kernels, { label: "kernels of " + name }));
    };
    show(names[0]);
    return el("section", { class: "panel" }, el("div", { class: "head" }, el("h2", {}, "Top kernels of both"), choice("region", names, show)),
      el("p", { class: "dim small" }, "Time per instance of the region (of total: per second). –: not among the ten longest of that run."), place);
  }

  // Before any figure: what is not the same.
  function differences() {
    if (!report.differences.length) return null;
    return section("What differs", null, table([{ title: "", text: true, of: (d) => d.what, by: (d) => d.what }, { title: "A", text: true, class: "note", of: (d) => d.a }, { title: "B", text: true, class: "note", of: (d) => d.b }],
      report.differences, { label: "what differs", shown: 12 }));
  }

  function remarks() {
    if (!report.remarks.length) return null;
    return el("section", { class: "panel", id: "warnings" }, el("h2", {}, "Before you compare"), el("ul", { class: "warnings" }, report.remarks.map((r) => el("li", {}, r))));
  }

  return [el("div", { class: "head" }, el("h1", {}, report.title),
    el("div", { class: "actions" }, el("button", { class: "more", type: "button", onclick: (e) => copyMarkdown(e.target, report.markdown) }, "copy as Markdown"))),
    el("ul", { class: "facts" }, el("li", {}, "A ", el("b", {}, report.a.path)), el("li", {}, "B ", el("b", {}, report.b.path)),
      report.remarks.length ? el("li", {}, el("a", { href: "#warnings" }, `${report.remarks.length} remark${report.remarks.length === 1 ? "" : "s"}`)) : null),
    differences(), answers(), changes(), figures(), kernels(), remarks(),
    el("footer", {}, `Written by mfu report ${report.version}. Charts: Chart.js ${Chart.version}, MIT licence.`)];
}

if (report.kind === "compare") start(comparePage);
