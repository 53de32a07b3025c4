// SPDX-License-Identifier: Apache-2.0
// Who lost what to whom, as a table whose cells are coloured and say their number.

import { h } from "./dom.js";
import { legend, median, name, none, scroll, slowness, step, table } from "./parts.js";
import { count, loss, plural, rtt } from "./words.js";

// `opens` gives the link of a cell; `by` is what cells show: loss or delay.
export function heat(data, caption, by, opens) {
  if (!data.rows.length) return none("Nothing is probed here, or nothing of it has been heard yet.");
  const cells = new Map(data.cells.map((cell) => [`${cell[0]} ${cell[1]}`, cell]));
  const middle = median(data.cells.map((cell) => cell[4]));
  const width = data.rows.length > 24 ? "dense" : "";
  const [firstRow, firstCol] = data.cells[0] ?? [0, 0];
  const body = data.rows.map((row, r) => h("tr", {}, h("th", { scope: "row" }, name(row)),
    data.cols.map((col, c) => one(cells.get(`${r} ${c}`), { row, col, by, middle, href: opens(row, col), first: r === firstRow && c === firstCol, isDense: width === "dense" }))));
  const made = h("table", { class: `heat ${width}`, role: "grid", "data-key": "heat", onkeydown: moved },
    h("caption", { class: "hidden" }, caption),
    h("thead", {}, h("tr", {}, h("td", { class: "corner" }, ""), data.cols.map((col) => h("th", { scope: "col" }, name(col))))),
    h("tbody", {}, body));
  const omitted = omission(data.omitted);
  return [legend(by, middle), h("p", { class: "quiet" }, `${caption}. Rows send, columns answer; arrow keys move between cells.${width ? ` Numbers are ${by === "loss" ? "percent" : "µs, unless they say otherwise"}.` : ""}`), h("div", { class: "scroll", "data-key": "scroll heat" }, made),
    omitted ? h("p", { class: "note-line" }, `${omitted} The worst are shown.`) : null, worst(data, opens)];
}

// Percent in three characters, where there are many columns.
function brief(sent, lost) {
  const percent = (100 * lost) / sent;
  if (!lost) return "0";
  if (percent < 0.1) return "<.1";
  return percent < 10 ? percent.toFixed(1).replace(/^0/, "").replace(/\.0$/, "") : String(Math.min(99, Math.floor(percent)) + (lost >= sent ? 1 : 0));
}

function omission(omitted) {
  if (!omitted) return null;
  if (typeof omitted === "number") return `${plural(omitted, "name is", "names are")} left out.`;
  const left = Object.entries(omitted).filter(([, value]) => value).map(([key, value]) => `${count(value)} ${key}`);
  return left.length ? `Left out: ${left.join(", ")}.` : null;
}

function one(cell, { row, col, by, middle, href, first, isDense }) {
  if (!cell || !cell[2]) return h("td", { class: "none" }, h("span", { class: "hidden" }, `${row} to ${col}: not probed`), h("span", { "aria-hidden": "true" }, row === col ? "" : "·"));
  const [, , sent, lost, mean, p99, pairs] = cell;
  const kind = by === "loss" ? step(sent, lost) : slowness(mean, middle);
  const shown = by === "loss" ? (isDense ? brief(sent, lost) : lost ? loss(sent, lost).replace(" ", "") : "0") : rtt(mean).replace(isDense ? / µs$/ : " ", "");
  const told = `${row} to ${col}: ${count(lost)} of ${count(sent)} lost (${loss(sent, lost)}), mean ${rtt(mean)}, p99 ${rtt(p99)}, ${plural(pairs, "pair")}`;
  const inside = href
    ? h("a", { href, tabindex: first ? 0 : -1, title: told, "aria-label": told }, shown)
    : h("span", { tabindex: first ? 0 : -1, title: told, "aria-label": told, role: "img" }, shown);
  return h("td", { class: kind }, inside);
}

const MOVES = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

// One stop of the Tab key for a whole table; arrows go on from there, over cells that have nothing.
function moved(event) {
  const move = MOVES[event.key];
  const at = event.target.closest("td");
  if (!move || !at || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const rows = [...at.closest("tbody").rows];
  let [r, c] = [rows.indexOf(at.parentElement), at.cellIndex];
  for (;;) {
    r += move[0];
    c += move[1];
    const next = rows[r]?.cells[c];
    if (!next) return;
    const focused = next.querySelector("[tabindex]");
    if (focused) {
      at.querySelector("[tabindex]").setAttribute("tabindex", "-1");
      focused.setAttribute("tabindex", "0");
      focused.focus();
      return;
    }
  }
}

function worst(data, opens) {
  const lossy = data.cells.filter((cell) => cell[3]).sort((a, b) => b[3] / b[2] - a[3] / a[2]).slice(0, 20);
  if (!lossy.length) return none("No probe was lost here.");
  return table("The lossiest of these, worst first", [
    ["From", ([r]) => name(data.rows[r])],
    ["To", ([r, c]) => {
      const href = opens(data.rows[r], data.cols[c]);
      return href ? h("a", { href, "data-key": `worst ${href}` }, name(data.cols[c])) : name(data.cols[c]);
    }],
    ["Lost", ([, , sent, lost]) => loss(sent, lost), "num"],
    ["Probes", ([, , sent, lost]) => `${count(lost)} of ${count(sent)}`, "num"],
    ["Mean", ([, , , , mean]) => rtt(mean), "num"],
    ["p99", ([, , , , , p99]) => rtt(p99), "num"],
    ["Pairs", ([, , , , , , pairs]) => count(pairs), "num"],
  ], lossy);
}
