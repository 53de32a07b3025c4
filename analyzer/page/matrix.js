// SPDX-License-Identifier: Apache-2.0
// Loss and delay between leaves, rails, hosts or tasks; a leaf opens into hosts, hosts into pairs.

import { path } from "./api.js";
import { h } from "./dom.js";
import { heat } from "./heat.js";
import { choice, name, to } from "./parts.js";
import { time } from "./words.js";

const KINDS = [["leaf", "Leaves"], ["rail", "Rails"], ["host", "Hosts"], ["task", "Tasks"]];

export const title = () => "Matrix";
export const every = 3;

export const source = (_, query) => path("matrix", { by: query.by ?? "leaf", row: query.row, col: query.col });

export function view(data, { query, go, say }) {
  const shown = query.show === "delay" ? "delay" : "loss";
  const asked = query.by ?? "leaf";
  const where = query.row || query.col ? [query.row, query.col].filter(Boolean) : [];
  return [
    h("h1", {}, "Matrix"),
    h("div", { class: "controls" },
      choice("By", KINDS, asked, (by) => go(to.matrix({ by, show: shown }))),
      choice("Show", [["loss", "Loss"], ["delay", "Delay"]], shown, (show) => {
        go(to.matrix({ ...query, by: asked, show }));
        say(show === "delay" ? "Cells show round trips." : "Cells show losses.");
      })),
    where.length ? h("p", { class: "crumbs" }, h("a", { href: to.matrix({ by: asked, show: shown }) }, "All"), " › ",
      where.map((each, n) => [n ? " to " : "", name(each)])) : null,
    h("p", { class: "quiet" }, "Window of ", time(data.at_ns), data.width_ns ? `, ${data.width_ns / 1e9} s wide` : "", "."),
    heat(data, `Probes by ${data.by}`, shown, (row, col) => open(data, row, col, shown)),
  ];
}

// Leaves open into hosts, hosts into endpoints, and these into their pair.
export function open(data, row, col, show) {
  if (!data.opens || !row || !col) return null;
  return data.by === "endpoint" ? to.pair(row, col) : to.matrix({ by: "host", row, col, show });
}
