// SPDX-License-Identifier: Apache-2.0
// Which view is shown, by the address; what comes by itself; keys.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import * as diagnose from "./diagnose.js";
import * as fabric from "./fabric.js";
import * as host from "./host.js";
import * as hosts from "./hosts.js";
import * as incident from "./incident.js";
import { Live } from "./live.js";
import * as incidents from "./incidents.js";
import * as matrix from "./matrix.js";
import * as now from "./now.js";
import * as pair from "./pair.js";
import { badge, failure, icon, name } from "./parts.js";
import * as task from "./task.js";
import * as tasks from "./tasks.js";
import { clock, isUtc, span, zone } from "./words.js";

// What an address leads to that names no view: an old link, or a mistake in one.
const missing = {
  title: () => "No such view",
  source: () => null,
  view: (_, { id }) => [h("h1", {}, "There is no such view"), h("p", { class: "lead" }, "This page has no view ", name(id), "."),
    h("ul", {}, MENU.map(([to_, text]) => h("li", {}, h("a", { href: `#/${to_}` }, text))))],
};
const VIEWS = { now, fabric, matrix, tasks, task, incident, incidents, pair, hosts, host, diagnose, missing };
const MENU = [["now", "Now", "n"], ["fabric", "Fabric", "f"], ["matrix", "Matrix", "m"], ["tasks", "Tasks", "t"], ["hosts", "Hosts", "h"], ["incidents", "Incidents", "i"], ["diagnose", "Diagnose", "d"]];
const WITHIN = { task: "tasks", host: "hosts", incident: "incidents", pair: "matrix" };

const at = (id) => document.getElementById(id);
const [main, said, alarm] = [at("view"), at("said"), at("alarm")];
let shown = null; // {view, id, query, data, ticks}
let asking = null; // aborts what the view before asked
let isPaused = false;
let newest = null; // the newest tick

function say(text) {
  said.textContent = "";
  requestAnimationFrame(() => { said.textContent = text; });
}

function route() {
  const [where, tail] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = where.split("/");
  const query = Object.fromEntries(new URLSearchParams(tail ?? ""));
  if (view === "missing" || !Object.hasOwn(VIEWS, view || "now")) return { view: "missing", id: view, query };
  let id = rest.join("/");
  try {
    id = decodeURIComponent(id);
  } catch {
    // as it is written
  }
  return { view: view || "now", id, query };
}

function go(href, quietly = false) {
  if (quietly) {
    history.replaceState(null, "", href);
    Object.assign(shown, route());
  } else location.hash = href.slice(1);
}

// Show what the address says. `isNew`: the reader went there, so focus goes along.
async function open(isNew) {
  const next = route();
  const module = VIEWS[next.view];
  asking?.abort();
  const mine = new AbortController();
  asking = mine;
  const isOther = !shown || shown.view !== next.view || shown.id !== next.id;
  shown = { ...next, data: isOther ? null : shown.data, ticks: 0 };
  const where = module.source(next.id, next.query);
  at("json").hidden = !where;
  if (where) at("json").setAttribute("href", where);
  menu(next.view);
  retitle();
  if (isOther && where) replace(main, h("p", { class: "quiet" }, "Loading…"));
  await load(module, where, mine, isNew);
}

async function load(module, where, mine, isNew) {
  main.setAttribute("aria-busy", "true");
  try {
    const data = where ? await get(where, mine.signal) : null;
    if (mine !== asking) return;
    shown.data = data;
    draw(module, mine);
  } catch (error) {
    if (mine !== asking || error.name === "AbortError") return;
    const before = shown.data && error.status === 0;
    if (!before) replace(main, h("h1", {}, module.title(shown.id, shown.query)), failure(error));
    if (error.status !== 0 && error.status !== 404 && !(error.status >= 400)) throw error;
  } finally {
    if (mine === asking) main.removeAttribute("aria-busy");
  }
  if (isNew && mine === asking) {
    main.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
}

function draw(module, mine) {
  const { id, query, data } = shown;
  replace(main, module.view(data, { id, query, go, say, wide: main.clientWidth - 40, signal: mine.signal }));
  retitle();
}

// The same view with newer numbers.
function refresh() {
  const module = VIEWS[shown.view];
  const where = module.source(shown.id, shown.query);
  if (!where || main.hasAttribute("aria-busy")) return;
  if (main.contains(document.activeElement) && document.activeElement.matches("input, select")) return;
  load(module, where, asking, false);
}

function menu(view) {
  const mine = WITHIN[view] ?? view;
  at("views").replaceChildren(h("ul", {}, MENU.map(([to_, text, key]) => h("li", {},
    h("a", { href: `#/${to_}`, "aria-current": to_ === mine ? "page" : null, "aria-keyshortcuts": `g ${key}` }, text)))));
}

function retitle() {
  const state = newest && newest.state !== "well" ? `(${newest.state}) ` : "";
  document.title = `${state}${VIEWS[shown.view].title(shown.id, shown.query)} – netagent`;
}

// --- what comes by itself ----------------------------------------------------------------------

let later = null;

function soon(ms) {
  clearTimeout(later);
  later = setTimeout(() => { if (!isPaused) refresh(); }, ms);
}

const TOLD = { confirmed: "Confirmed", recovered: "Recovered", revised: "Revised", unobserved: "Not measured any more", observed: "Measured again" };
const spoken = new Set(); // ids of incidents that are no news

function heard(kind, data) {
  if (kind === "tick") {
    stated(data);
    shown.ticks += 1;
    const every = VIEWS[shown.view].every;
    if (!isPaused && every && !document.hidden && shown.ticks % every === 0) refresh();
    return;
  }
  if (kind === "closed") {
    refused();
    return;
  }
  const known = data.incident;
  // What is certain at once is confirmed without having been open.
  const isNew = !spoken.has(known.id) && known.state !== "recovered";
  spoken.add(known.id);
  const text = `${isNew ? "New incident" : TOLD[data.event] ?? data.event}: ${known.component ?? "insufficient evidence"}. ${known.summary}`;
  (isNew ? alarm : said).textContent = text;
  if (isPaused) return;
  if (shown.view === "now" && shown.data) {
    merge(shown.data, known);
    draw(now, asking);
  }
  soon(300);
}

function stated(data) {
  newest = data;
  at("state").replaceChildren(badge(data.state), " ", name(data.line));
  retitle();
}

// An incident is on the page as soon as it is told; the counts follow with the view itself.
function merge(data, known) {
  data.incidents = data.incidents.filter((each) => each.id !== known.id);
  data.recovered = data.recovered.filter((each) => each.id !== known.id);
  (known.state === "recovered" ? data.recovered : data.incidents).unshift(known);
  if (known.state !== "recovered" && data.state === "well") {
    data.state = "incidents";
    data.line = known.summary;
  }
}

let isOver = false;

async function refused() {
  try {
    await get("/v1/views/now");
    isOver = false;
  } catch (error) {
    isOver = error.status === 401 || error.status === 403;
    if (isOver) replace(main, h("h1", {}, "No session"), failure(error));
  }
}

let wasLost = false;

function looked(news) {
  const place = at("news");
  place.className = news.isLost ? "lost" : "";
  if (isPaused && !news.isLost) {
    place.textContent = "Paused: numbers stand still";
  } else if (!news.isLost) {
    place.textContent = "Live";
  } else if (news.newestMs === null) {
    place.replaceChildren(icon("bad"), " No news yet: not connected");
  } else {
    const text = `No news since ${clock(news.newestMs * 1e6)} (${span(Math.round(news.silentMs / 1e3))}): what is below may be over`;
    place.replaceChildren(icon("bad"), ` ${text}`);
  }
  document.body.classList.toggle("stale", news.isLost && news.newestMs !== null);
  if (news.isLost && !wasLost && news.newestMs !== null) alarm.textContent = "The connection to the analyzer is lost.";
  if (!news.isLost && wasLost) {
    say("Connected.");
    soon(0);
  }
  wasLost = news.isLost;
}

// --- colours, keys -----------------------------------------------------------------------------

function colours() {
  const select = at("theme");
  let kept = "";
  try {
    kept = localStorage.getItem("theme") ?? "";
  } catch {
    // a browser that keeps nothing
  }
  const paint = (value) => {
    if (value === "light" || value === "dark") document.documentElement.dataset.theme = value;
    else delete document.documentElement.dataset.theme;
  };
  select.value = kept === "light" || kept === "dark" ? kept : "";
  paint(select.value);
  select.addEventListener("change", () => {
    paint(select.value);
    try {
      localStorage.setItem("theme", select.value);
    } catch {
      // for this time only
    }
  });
}

const KEYS = [
  ...MENU.map(([, text, key]) => [`g ${key}`, `go to ${text}`]),
  ["/", "diagnose: two ends"], ["p", "pause, and go on"], ["r", "ask for this view again"],
  ["arrows", "in a matrix: from cell to cell"], ["?", "these keys"], ["Escape", "close this"],
];

function pause() {
  isPaused = !isPaused;
  at("pause").setAttribute("aria-pressed", String(isPaused));
  say(isPaused ? "Paused." : "Live.");
  if (!isPaused) refresh();
}

function keys() {
  at("keys-body").replaceChildren(h("dl", { class: "keys" }, KEYS.map(([key, text]) => h("div", {},
    h("dt", {}, key.split(" ").map((each) => h("kbd", {}, each))), h("dd", {}, text)))));
  at("help").addEventListener("click", () => at("keys").showModal());
  at("pause").addEventListener("click", pause);
  at("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  let isAfterG = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || at("keys").open) return;
    if (event.target.closest("input, select, textarea")) return;
    const before = isAfterG;
    isAfterG = event.key === "g" && !before;
    const wanted = before ? MENU.find(([, , key]) => key === event.key) : null;
    if (wanted) go(`#/${wanted[0]}`);
    else if (event.key === "?") at("keys").showModal();
    else if (event.key === "p") pause();
    else if (event.key === "r") refresh();
    else if (event.key === "/") {
      go("#/diagnose");
      requestAnimationFrame(() => setTimeout(() => at("source")?.focus(), 100));
    } else return;
    event.preventDefault();
  });
}

at("zone").textContent = isUtc() ? "UTC" : `${zone()}, by UTC where an instant is told in full`;
colours();
keys();
document.addEventListener("visibilitychange", () => { if (!document.hidden && !isPaused) refresh(); });
window.addEventListener("hashchange", () => open(true));
open(false);
get("/v1/views/now").then((data) => {
  for (const each of data.incidents) spoken.add(each.id);
  if (!newest) stated(data);
}, () => {}); // the view itself says what is wrong
new Live(heard, looked);
