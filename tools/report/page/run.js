"use strict";
// One run: answers first, then charts, then what they were worked out from.

// `/opt/venv/bin/python /home/me/train.py --steps 3` as one says it: python train.py --steps 3
const shortCommand = (command) => command.replace(/(^|\s)\/\S*\/([^\s\/]+)/g, "$1$2");

function header() {
  const gpus = new Map();
  for (const d of report.devices) gpus.set(d.name || "unnamed GPU", (gpus.get(d.name || "unnamed GPU") || 0) + d.count);
  const about = report.about;
  const facts = [["", about.model], ["", about.facts.workload], ["", [...gpus].map(([name, n]) => `${count(n)} × ${name}`).join(", ") || "no device"]];
  if (about.facts.parallel) facts.push(["", about.facts.parallel]);
  const peaks = peakNames();
  if (peaks.length) facts.push(["peak ", peaks.join(", ")]);
  if (report.conventions.length) facts.push(["FLOP counted ", report.conventions.join(", ")]);
  if (job.processes > 1) facts.push(["", `${job.processes} processes` + (report.hosts ? ` on ${report.hosts} host${report.hosts === 1 ? "" : "s"}` : "")]);
  else if (about.facts.host) facts.push(["host ", about.facts.host]);
  if (about.facts.command) facts.push(["", el("code", { class: "command", title: about.facts.command }, shortCommand(about.facts.command))]);
  facts.push(["", duration((job.t1_ns - job.t0_ns) / 1e9)]);
  if (report.start) facts.push(["from ", report.start]);
  facts.push(["", el("span", { title: report.path }, baseName(report.path.replace(/\/+$/, "")))]);
  if (report.versions.length) facts.push(["mfuinject ", report.versions.join(", ")]);
  const unfinished = job.processes - job.complete;
  return [
    el("div", { class: "head" }, el("h1", {}, about.title),
      el("div", { class: "actions" },
        el("button", { class: "more", type: "button", onclick: (e) => copyCard(e.target) }, "copy as PNG"),
        el("button", { class: "more", type: "button", onclick: (e) => copyMarkdown(e.target) }, "copy as Markdown"))),
    el("ul", { class: "facts" }, facts.filter(([, value]) => value).map(([what, value]) => el("li", {}, what, el("b", {}, value))),
      unfinished > 0 ? el("li", {}, el("span", { class: "badge warn" }, job.processes === 1 ? "not finished: summed from its windows" : `${unfinished} of ${job.processes} not finished: summed from windows`)) : null,
      job.warnings.length ? el("li", {}, el("a", { href: "#warnings" }, `${job.warnings.length} remark${job.warnings.length === 1 ? "" : "s"}`)) : null),
  ];
}

function answer(r) {
  const p = partsOf(r);
  const numbers = [];
  const add = (what, node) => numbers.push(el("span", {}, what, " ", node));
  const b = (key, value, text) => figure(`${r.region}.${key}`, value, text, "b");
  if (r.region !== "total" && r.instances) add("each", b("each_s", r.each_s, duration(r.each_s)));
  if (r.region !== "total" && r.instances && r.tokens) add("of", el("b", {}, `${count(Math.round(r.tokens / r.instances))} tokens`));
  if (r.latency) add("p99", b("latency.p99_s", r.latency.p99_s, duration(r.latency.p99_s)));
  if (byMemory(r)) add("MFU", b("mfu", r.mfu, percent(r.mfu)));
  else if (r.mbu != null) add("MBU", b("mbu", r.mbu, percent(r.mbu)));
  else if (r.mbu_lower != null) add("MBU", b("mbu_lower", r.mbu_lower, atLeast(r.mbu_lower)));
  if (hfuIsExecuted(r)) add("HFU", [b("hfu", r.hfu, percent(r.hfu)), ` (of ${wholePercent(seenOf(r))} seen)`]);
  else if (r.hfu != null && r.hfu > r.mfu * 1.0005) add("HFU", b("hfu", r.hfu, percent(r.hfu)));
  if (r.bound) add("roofline:", el("b", {}, r.bound));
  if (r.tokens_per_s != null) add(r.devices > 1 ? "per GPU" : "", b("tokens_per_s", r.tokens_per_s, scaled(r.tokens_per_s, "token/s")));
  if (r.region !== "total") add("instances", b("instances", r.instances, count(r.instances)));
  add(r.devices > 1 ? "GPU time" : "elapsed", b("elapsed_s", r.elapsed_s, duration(r.elapsed_s)));
  const marks = [];
  if (r.suspect) marks.push(el("span", { class: "badge warn", title: r.suspect }, "suspect: " + r.suspect.split(":")[0]));
  if (r.named_by === "detector") marks.push(el("span", { class: "badge", title: r.detected ? `${r.detected.kind}, confidence ${r.detected.confidence}` : "" }, r.detected && r.detected.confidence === "high" ? "detected" : "inferred"));
  if (r.overlapped) marks.push(el("span", { class: "badge" }, "overlapped"));
  return el("div", { class: "answer", "data-region": r.region },
    el("div", { class: "head-cell" },
      el("div", { class: "name" }, r.region === "total" ? (job.processes > 1 ? "total (all processes)" : "total (the process)") : r.region, " ", marks),
      byMemory(r) ? figure(`${r.region}.mbu`, r.mbu, [percent(r.mbu), el("span", {}, "MBU")], "div", { class: "big" })
        : r.mfu != null || isBound(r) ? figure(`${r.region}.${mfuKey(r)}`, r[mfuKey(r)], [mfuText(r), el("span", {}, "MFU")], "div", { class: "big" })
        : hfuIsExecuted(r) ? figure(`${r.region}.hfu`, r.hfu, [percent(r.hfu), el("span", {}, "HFU")], "div", { class: "big" })
        : figure(`${r.region}.mfu`, null, "MFU unknown", "div", { class: "big unknown" })),
    el("div", {},
      p ? stackedBar(p.parts, p.names, r.region) : null,
      el("p", { class: "words" }, r.words ? sentence(r.words) + "." : "", r.why_no_mfu && regions.find((x) => x.why_no_mfu === r.why_no_mfu) === r ? ` ${isBound(r) ? "Only a bound of MFU" : "No MFU"}: ${r.why_no_mfu}.` : ""),
      // What the matmuls that ran say: recomputation, padding, what is not seen.
      r.findings && r.findings.length ? el("ul", { class: "odd" }, r.findings.map((f) => el("li", {}, sentence(f.text) + "."))) : null,
      el("div", { class: "numbers" }, numbers)));
}

// Under the headline: who holds the others up, who is not like the rest.
function rankNotes() {
  return job.rank_notes.length ? el("ul", { class: "odd" }, job.rank_notes.map((line) => el("li", {}, line))) : null;
}

function answers() {
  const shown = regions.length > 9 ? [...named.slice(0, 8), total].filter(Boolean) : regions;
  const rest = regions.length - shown.length;
  const keys = knowsMfu ? ["mfu", ...CLASSES] : CLASSES;
  return section("Where the time went", null, rankNotes(), legend(keys, knowsMfu ? LOST : TIME), shown.map(answer),
    rest > 0 ? el("p", { class: "dim small" }, `${rest} shorter regions are in the table below.`) : null);
}

// The tool's own proof: one line, unless something is missing.
function launches() {
  const l = job.launches;
  // Every program with CUDA graphs has captured launches.
  const counters = Object.entries(job.counters || {}).filter(([k]) => k !== "launches_captured");
  const f = (key) => figure("launches." + key, l[key], count(l[key]));
  const lost = l ? l.unattributed + l.dropped : 0;
  const line = l ? el("p", { class: lost > l.seen / 1000 ? "" : "dim small" }, "Launches: ", f("seen"), " = ", f("attributed"), " in a region + ", f("outside"), " outside every region + ", f("unattributed"), " that nothing decides between regions + ", f("dropped"), " without a record from CUPTI.", l.not_timed ? [" Of the others ", f("not_timed"), " have a record without a usable time."] : "")
    : el("p", { class: "dim small" }, "Launches are counted at the end of a run, and this one has no end.");
  const notes = el("p", { class: "dim small" }, counters.length ? `Counted on the way: ${counters.map(([k, n]) => `${k} ${count(n)}`).join(", ")}. ` : "",
    job.self && !report.trace ? `The library itself: ${duration(job.self.cpu_s)} CPU, ${scaled(job.self.rss_bytes, "B")}, ${(job.self.overhead * 100).toFixed(2)} % of the run in callbacks.` : "");
  return lost > (l ? l.seen / 1000 : 0) ? section("Launches that are missing", null, line, notes) : el("div", { class: "account" }, line, notes);
}

function warnings() {
  if (!job.warnings.length) return null;
  return el("section", { class: "panel", id: "warnings" }, el("h2", {}, "Caveats"),
    el("ul", { class: "warnings" }, job.warnings.map((w) => el("li", {}, el("b", {}, w.kind), " ", w.message,
      el("span", { class: "dim small" }, [w.source ? " " + baseName(w.source) : "", w.count > 1 ? ` ${count(w.count)} times` : ""].join(""))))));
}

function runPage() {
  return [...header(), answers(),
    el("div", { class: "grid" }, stepsDown(), whatToDo()),
    el("div", { class: "grid" }, overTime(), waterfallOverTime()),
    lifeOfTheJob(), layerStrips(), stepStrip(), instanceTimelines(), components(),
    el("div", { class: "grid" }, [knowsMfu ? roofline() : null, distributions()].filter(Boolean).map((panel) => { panel.classList.add("wide"); return panel; })),
    idleCauses(), batches(), slowest(), kernels(), regionTable(), ranks(), divided(), warnings(), launches(),
    el("footer", {}, `Written by mfu report ${report.version}. Charts: Chart.js ${Chart.version}, MIT licence.`)];
}

if (report.kind === "run") start(runPage);
