"use strict";
// A run that goes on (mfu serve): the page loads itself again, and what its reader had chosen stays.

const KEPT = "mfu " + location.pathname;
const FOCUSABLE = "button, select, a, [tabindex]";
const wholeTables = () => [...document.querySelectorAll("[data-table]")];
// `scope` of every choice: the panel's heading, since panels come and go as the run goes on.
const panelOf = (node) => (node.closest("section") || document).querySelector("h2")?.textContent || "";

function choices() {
  return {
    selects: [...document.querySelectorAll("select")].map((s) => [panelOf(s), s.value]),
    sorted: [...document.querySelectorAll("th[aria-sort]")].map((th) => [panelOf(th), th.textContent, th.getAttribute("aria-sort")]),
    whole: wholeTables().filter((t) => t.dataset.table === "whole").map(panelOf),
    focus: [...document.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement),
    scroll: scrollY,
  };
}

function chooseAgain(kept) {
  for (const [panel, value] of kept.selects)
    for (const s of document.querySelectorAll("select"))
      if (panelOf(s) === panel && s.value !== value && [...s.options].some((o) => o.value === value)) {
        s.value = value;
        s.dispatchEvent(new Event("change"));
      }
  for (const [panel, title, way] of kept.sorted)
    for (const th of document.querySelectorAll("th"))
      if (panelOf(th) === panel && th.textContent === title)
        for (let i = 0; i < 2 && th.getAttribute("aria-sort") !== way; ++i) th.querySelector("button")?.click();
  for (const t of wholeTables()) if (kept.whole.includes(panelOf(t))) t.querySelector(".more").click();
  if (kept.focus >= 0) document.querySelectorAll(FOCUSABLE)[kept.focus]?.focus({ preventScroll: true });
  scrollTo(0, kept.scroll);
}

function keepLive(every_s) {
  let paused = false;
  const said = el("span", { class: "badge" }, "live");
  const button = el("button", { class: "more", type: "button", onclick: () => {
    paused = !paused;
    button.textContent = paused ? "go on" : "pause";
    said.textContent = paused ? "paused" : "live";
  } }, "pause");
  document.querySelector(".actions").prepend(said, button);
  try {
    const kept = sessionStorage.getItem(KEPT);
    if (kept) chooseAgain(JSON.parse(kept));
  } catch { /* no storage: the page begins anew each time */ }
  const again = async () => {
    // The page is hidden, or text is being marked: not now.
    if (paused || document.hidden || String(getSelection())) return setTimeout(again, 1000);
    try {
      const answer = await fetch(location.href, { method: "HEAD", cache: "no-store" });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
    } catch {
      // What was shown last is worth more than the browser's own error page.
      said.textContent = `no answer at ${new Date().toLocaleTimeString()}: shown is what was known`;
      said.className = "badge warn";
      return setTimeout(again, every_s * 1000);
    }
    try {
      sessionStorage.setItem(KEPT, JSON.stringify(choices()));
    } catch { /* as above */ }
    location.reload();
  };
  setTimeout(again, every_s * 1000);
}

if (report.refresh_s && document.body.dataset.ready) keepLive(report.refresh_s);
