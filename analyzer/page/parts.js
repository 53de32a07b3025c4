// SPDX-License-Identifier: Apache-2.0
// What several views show alike.

import { h } from "./dom.js";
import { clock, count, loss, plural, rtt, share, time } from "./words.js";

// Shapes, so that no state is told by its colour alone.
const DRAWN = {
  well: "M3 8.5 6.5 12 13 4.5",
  bad: "M8 1.5 15 14H1Z",
  open: "M8 1 15 8 8 15 1 8Z",
  silent: "M3 3 13 13M13 3 3 13",
  unknown: "M5.5 6a2.5 2.5 0 1 1 3.6 2.2C8.3 8.7 8 9.2 8 10.2M8 13v.2",
};
const FILLED = new Set(["bad", "open"]);

export function icon(kind) {
  const shape = h("path", { d: DRAWN[kind], class: FILLED.has(kind) ? "full" : "line" });
  return h("svg", { class: `icon ${kind}`, viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" }, shape);
}

const STATES = {
  well: ["well", "well"],
  incidents: ["bad", "incidents"],
  blind: ["unknown", "cannot tell"],
  starting: ["unknown", "starting"],
  confirmed: ["bad", "confirmed"],
  open: ["open", "open"],
  recovered: ["well", "recovered"],
  silent: ["silent", "silent"],
  suspect: ["bad", "suspect"],
};

export function badge(state, text) {
  const [kind, said] = STATES[state] ?? ["unknown", state ?? "unknown"];
  const shown = String(text ?? said);
  return h("span", { class: `badge ${kind}${shown.length > 40 ? " long" : ""}` }, icon(kind), h("bdi", {}, shown));
}

export const to = {
  incident: (id) => `#/incident/${encodeURIComponent(id)}`,
  task: (id) => `#/task/${encodeURIComponent(id)}`,
  host: (id) => `#/host/${encodeURIComponent(id)}`,
  pair: (source, target) => `#/pair?${new URLSearchParams({ source, target })}`,
  diagnose: (query) => `#/diagnose?${new URLSearchParams(query)}`,
  matrix: (query) => `#/matrix?${new URLSearchParams(query)}`,
};

// A name runs as it wants within itself, and takes nothing beside it along (bdi); short ones stay in one piece.
export function name(text, more = "") {
  const shown = text === "" ? "not known" : String(text ?? "–");
  const kind = shown.length <= 24 && !shown.includes(" ") ? "brief" : /\S{25}/.test(shown) ? "unbroken" : "";
  return h("bdi", { class: `name ${more} ${kind}` }, shown);
}
export const link = (href, text) => h("a", { href }, name(text));

export function section(title, id, ...rest) {
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), rest);
}

export function none(text) {
  return h("p", { class: "quiet" }, text);
}

// A table; each column is [title, cell of a row, class]. Its caption says what it holds.
export function table(caption, columns, rows, { key, quiet = false, most = 200 } = {}) {
  const heads = columns.map(([title, , kind]) => h("th", { scope: "col", class: kind ?? "" }, title));
  const lines = rows.slice(0, most).map((row) => h("tr", {}, columns.map(([, cell, kind], n) =>
    n === 0 ? h("th", { scope: "row", class: kind ?? "" }, cell(row)) : h("td", { class: kind ?? "" }, cell(row)))));
  const more = rows.length > most ? h("p", { class: "quiet" }, `${count(rows.length - most)} more are in the JSON.`) : null;
  return [
    scroll(key ?? caption, caption, h("table", {},
      h("caption", { class: quiet ? "hidden" : "" }, caption),
      h("thead", {}, h("tr", {}, heads)), h("tbody", {}, lines))),
    more,
  ];
}

// What may be wider than the window scrolls by itself, by keys as well.
export function scroll(key, label, ...inside) {
  return h("div", { class: "scroll", "data-key": `scroll ${key}`, role: "group", tabindex: 0, "aria-label": label }, inside);
}

export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter((each) => each).map(([term, value]) =>
    h("div", {}, h("dt", {}, term), h("dd", {}, value === "" ? "–" : value))));
}

// Those first of which it is known what is at fault, and of these the ones that most pairs feel; `sorted` as they are.
export function incidents(given, caption, { sorted = false } = {}) {
  const order = (each) => (each.component === null ? 1 : 0);
  const list = sorted ? given : [...given].sort((a, b) => order(a) - order(b) || (a.recovered_ns === null && b.recovered_ns === null ? b.pairs_failing - a.pairs_failing : 0));
  return table(caption, [
    ["State", (each) => badge(each.state)],
    ["At fault", (each) => h("a", { href: to.incident(each.id) },
      each.component === null || each.component === undefined ? "not known: insufficient evidence" : name(each.component)), "several"],
    ["What is seen", (each) => [
      h("span", { class: "what" }, name(each.summary)),
      each.stored === false ? h("span", { class: "note-inline" }, " · not on disk") : null,
      each.is_late ? h("span", { class: "note-inline" }, " · told late") : null,
      each.unobserved_ns ? h("span", { class: "note-inline" }, " · not measured any more") : null,
    ], "wide"],
    ["Confidence", (each) => (each.component === null ? "–" : share(each.confidence)), "num"],
    ["Tasks", (each) => some((each.tasks ?? []).map((task) => link(to.task(task), task)), 3), "several"],
    ["Pairs", (each) => count(each.pairs_failing), "num"],
    ["Since", (each) => [time(each.detected_ns), each.recovered_ns ? [" to ", time(each.recovered_ns)] : null], "when"],
  ], list);
}

export function some(nodes, most) {
  const shown = nodes.slice(0, most).flatMap((node, n) => (n ? [", ", node] : [node]));
  return nodes.length > most ? [shown, ` and ${count(nodes.length - most)} more`] : shown;
}

// Steps of loss: of one hue from light to dark, each with its number beside it.
export function step(sent, lost) {
  if (!sent) return "none";
  const lostShare = lost / sent;
  if (lost === 0) return "s0";
  if (lostShare < 0.001) return "s1";
  if (lostShare < 0.01) return "s2";
  if (lostShare < 0.1) return "s3";
  return lostShare < 0.5 ? "s4" : "s5";
}

// Steps of delay: against the middle of all that is shown.
export function slowness(value, middle) {
  if (value === null || value === undefined || !middle) return "none";
  const times = value / middle;
  if (times < 1.5) return "s0";
  if (times < 2) return "s1";
  if (times < 3) return "s2";
  if (times < 5) return "s3";
  return times < 10 ? "s4" : "s5";
}

export function median(values) {
  const known = values.filter((each) => each !== null && each !== undefined).sort((a, b) => a - b);
  return known.length ? known[Math.floor(known.length / 2)] : null;
}

const LEGENDS = {
  loss: ["none", "under 0.1 %", "under 1 %", "under 10 %", "under 50 %", "50 % and more"],
  delay: ["usual", "1.5 ×", "2 ×", "3 ×", "5 ×", "10 × and more"],
};

export function legend(by, middle) {
  const what = by === "loss" ? "Probes lost" : `Round trip, against the middle of these (${rtt(middle)})`;
  return h("div", { class: "legend" }, h("span", {}, `${what}: `),
    LEGENDS[by].map((text, n) => h("span", { class: "step" }, h("span", { class: `swatch s${n}`, "aria-hidden": "true" }), text)),
    h("span", { class: "step" }, h("span", { class: "swatch none", "aria-hidden": "true" }), "not probed"));
}

// Two buttons, one of them pressed.
export function choice(label, options, chosen, choose) {
  return h("div", { class: "choice", role: "group", "aria-label": label }, options.map(([value, text]) =>
    h("button", { type: "button", id: `choose-${label.replaceAll(" ", "-")}-${value}`, "aria-pressed": String(value === chosen), onclick: () => choose(value) }, text)));
}

// Lines of p50, p90 and p99, which stand in a row from `at` on; others where no row knows them.
export function spread(rows, at, others) {
  const known = rows.some((row) => row[at] !== null && row[at] !== undefined);
  return known ? [[at + 2, "p99 of round trips"], [at + 1, "p90"], [at, "p50"]] : others;
}

const MINUTE_NS = 60e9;

// Loss as bars and round trips as lines over time; the same numbers as a table below.
export function series(title, rows, lines, key) {
  if (!rows.length) return none(`${title}: nothing is known of this time. The newest minute comes half a minute after its end.`);
  const wide = Math.max(320, Math.min(900, document.getElementById("view").clientWidth - 26));
  const [high, left, foot] = [150, 72, 18];
  const middle = 62; // losses above it, round trips below
  const first = rows[0][0];
  const last = rows[rows.length - 1][0];
  const x = (ns) => left + ((wide - left - 8) * (ns - first)) / Math.max(1, last - first);
  const bar = Math.max(1.5, Math.min(9, (wide - left) / rows.length - 1));
  const worst = Math.max(...rows.map(([, sent, lost]) => (sent ? lost / sent : 0)));
  const top = worst > 0.1 ? 1 : worst > 0.01 ? 0.1 : 0.01;
  const bars = rows.map(([ns, sent, lost]) => {
    if (!sent) return h("rect", { class: "gap", x: x(ns) - bar / 2, y: 10, width: bar, height: high - foot - 10 });
    const tall = lost ? Math.max(2, (middle - 14) * Math.min(1, lost / sent / top)) : 0;
    return tall ? h("rect", { class: "lost", x: x(ns) - bar / 2, y: middle - tall, width: bar, height: tall }) : null;
  });
  const known = rows.flatMap((row) => lines.map(([at]) => row[at]).filter((each) => each !== null && each > 0));
  const highest = Math.max(...known, 1);
  const lowest = Math.min(...known, highest / 2); // the scale is logarithmic: tails are many times the usual
  const y = (ns) => high - foot - 4 - (high - foot - middle - 20) * (Math.log(Math.max(ns, lowest) / lowest) / Math.log(highest / lowest));
  const drawn = lines.map(([at], n) => parts(rows, at).map((part) => (part.length === 1
    ? h("circle", { class: `dot l${n}`, cx: x(part[0][0]), cy: y(part[0][at]), r: 2.5 })
    : h("polyline", { class: `line l${n}`, points: part.map((row) => `${x(row[0]).toFixed(1)},${y(row[at]).toFixed(1)}`).join(" ") }))));
  const texts = [
    h("text", { x: left - 6, y: 18, "text-anchor": "end" }, `${top * 100} % lost`),
    h("text", { x: left - 6, y: middle, "text-anchor": "end" }, "0"),
    known.length ? h("text", { x: left - 6, y: middle + 20, "text-anchor": "end" }, rtt(highest)) : null,
    known.length ? h("text", { x: left - 6, y: high - foot, "text-anchor": "end" }, rtt(lowest)) : null,
    h("text", { x: left, y: high - 3 }, clock(first)),
    h("text", { x: wide - 8, y: high - 3, "text-anchor": "end" }, clock(last)),
  ];
  const sent = rows.reduce((sum, row) => sum + row[1], 0);
  const lost = rows.reduce((sum, row) => sum + row[2], 0);
  const blank = rows.filter((row) => !row[1]).length;
  const told = `${title}, ${clock(first)} to ${clock(last + MINUTE_NS)}: ${plural(sent, "probe")}, ${count(lost)} lost (${loss(sent, lost)}), at worst ${Math.round(worst * 1000) / 10} % in one minute; ` +
    `${known.length ? `${lines[0][1]} at most ${rtt(highest)}` : "no round trip"}${blank ? `; nothing probed in ${plural(blank, "minute")}` : ""}.`;
  return h("figure", {},
    h("svg", { class: "series", viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "img", "aria-label": told },
      h("line", { class: "axis", x1: left, x2: wide - 8, y1: middle, y2: middle }),
      h("line", { class: "axis", x1: left, x2: wide - 8, y1: high - foot, y2: high - foot }), bars, drawn, texts),
    h("figcaption", {}, told, " ", lines.map(([, text], n) => h("span", { class: "step" }, h("svg", { class: "icon", width: 24, height: 8, "aria-hidden": "true" }, h("line", { class: `line l${n}`, x1: 0, x2: 24, y1: 4, y2: 4 })), text))),
    h("details", { "data-key": `series ${key}` }, h("summary", {}, "The same as a table"),
      table(title, [
        ["From", (row) => time(row[0])],
        ["Sent", (row) => count(row[1]), "num"],
        ["Lost", (row) => `${count(row[2])} (${loss(row[1], row[2])})`, "num"],
        ...lines.map(([at, text]) => [text, (row) => rtt(row[at]), "num"]),
      ], [...rows].reverse(), { key })));
}

// Rows without a value break a line: what was not measured is not drawn through.
function parts(rows, at) {
  const found = [[]];
  for (const row of rows) {
    if (row[at] === null || row[at] === undefined) found.push([]);
    else found[found.length - 1].push(row);
  }
  return found.filter((part) => part.length);
}

export function copied(command, text, say) {
  const shown = h("code", { class: "command" }, command);
  const button = h("button", { type: "button", "aria-label": `Copy: ${text}`, onclick: async () => {
    try {
      await navigator.clipboard.writeText(command);
      say("Copied.");
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(shown);
      say("Selected: press Control C to copy.");
      button.textContent = "Selected";
    }
  } }, "Copy");
  return h("div", { class: "copy" }, shown, button);
}

export function failure(error) {
  return h("div", { class: "note", role: "alert" }, h("p", {}, icon("bad"), " ", name(error.message)),
    error.remedy ? h("p", { class: "quiet" }, name(error.remedy)) : null);
}

