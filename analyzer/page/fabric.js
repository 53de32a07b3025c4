// SPDX-License-Identifier: Apache-2.0
// A picture of the fabric, with the suspect in it; the same as tables for who cannot see or point.

import { path } from "./api.js";
import { h } from "./dom.js";
import { badge, choice, icon, legend, median, name, none, scroll, section, slowness, some, step, table, to } from "./parts.js";
import { byName, count, loss, plural, rtt, time } from "./words.js";

export const title = () => "Fabric";
export const source = () => path("fabric");
export const every = 3;

const TIER = { host: 0, group: 0, leaf: 1, spine: 2, router: 2 };
const NAMES = ["Hosts", "Leaves", "Spines"];
const ROW = 150; // between tiers
const HIGH = 34; // of a node

export function view(data, { query, go, wide }) {
  const by = query.show === "delay" ? "delay" : "loss";
  const middle = median(data.links.flatMap((each) => [each.rtt_ns, each.back?.rtt_ns]));
  const left = Object.entries(data.omitted ?? {}).filter(([, value]) => value);
  return [
    h("h1", {}, "Fabric"),
    h("div", { class: "controls" }, choice("Show", [["loss", "Loss"], ["delay", "Delay"]], by, (show) => go(`#/fabric?show=${show}`))),
    h("p", { class: "quiet" }, "Window of ", time(data.window_ns ?? data.at_ns), data.width_ns ? `, ${data.width_ns / 1e9} s wide. ` : ". ",
      data.aggregated ? "Hosts of a leaf are drawn as one group but for those in an incident. " : ""),
    left.length ? h("p", { class: "note-line" }, `Left out: ${left.map(([key, value]) => `${count(value)} ${key}`).join(", ")}; the worst are shown.`) : null,
    data.nodes.length ? [
      legend(by, middle),
      picture(data, by, middle, wide),
      h("p", { class: "quiet" }, "A lost probe counts on each link that it may have been lost on, there and back: links beside a bad one look bad, too. What is at fault an incident says."),
      section("Links", "links", links(data, by, middle)),
      section("Parts", "parts", parts(data)),
    ] : none("No host has been heard yet, so there is nothing to draw."),
  ];
}

function tierOf(node) {
  return node.tier ?? TIER[node.kind] ?? 2;
}

// Hosts stand below their leaves, leaves by rail, so that few links cross.
function placed(data, wide) {
  const tiers = [[], [], []];
  for (const node of data.nodes) tiers[Math.min(2, Math.max(0, tierOf(node)))].push(node);
  const neighbours = new Map(data.nodes.map((node) => [node.id, []]));
  for (const link of data.links) {
    neighbours.get(link.a)?.push(link.b);
    neighbours.get(link.b)?.push(link.a);
  }
  tiers[2].sort((a, b) => byName(a.id, b.id));
  tiers[0].sort((a, b) => byName(a.id, b.id));
  const order = new Map(tiers[0].map((node, n) => [node.id, n]));
  const centre = (node) => {
    const at = neighbours.get(node.id).map((each) => order.get(each)).filter((each) => each !== undefined);
    return at.length ? at.reduce((sum, each) => sum + each, 0) / at.length : 0;
  };
  tiers[1].sort((a, b) => (a.rail ?? 99) - (b.rail ?? 99) || centre(a) - centre(b) || byName(a.id, b.id));
  // Where each stands below one leaf, in the order of leaves: no links cross.
  const degree = tiers[0].reduce((sum, node) => sum + neighbours.get(node.id).length, 0);
  if (degree <= 1.5 * tiers[0].length) {
    tiers[1].forEach((node, n) => order.set(node.id, n));
    tiers[0].sort((a, b) => centre(a) - centre(b) || byName(a.id, b.id));
  }
  const slots = tiers.map((tier) => {
    const named = Math.max(58, Math.min(130, Math.max(0, ...tier.map((node) => label(node).length)) * 7.4 + 30));
    return tier.length * named + 90 <= Math.min(wide, 1240) || tier.length <= 8 ? named : Math.max(9, Math.min(named, (wide - 90) / tier.length));
  });
  const width = Math.max(Math.min(wide, 1240), 340, ...tiers.map((tier, n) => tier.length * slots[n] + 90));
  const places = new Map();
  tiers.forEach((tier, n) => tier.forEach((node, k) => places.set(node.id, {
    node, x: 80 + ((width - 90) * (k + 0.5)) / tier.length, y: 30 + (2 - n) * ROW, w: slots[n] < 58 ? slots[n] - 2 : Math.min(slots[n] - 8, 150),
  })));
  return { tiers, places, width, height: 30 + 2 * ROW + HIGH + 30 };
}

const label = (node) => (node.kind === "group" ? `${node.members} hosts` : node.id || "not known");

function picture(data, by, middle, wide) {
  const { tiers, places, width, height } = placed(data, wide);
  const drawn = [...data.links].sort((a, b) => worstOf(a) - worstOf(b));
  const bands = railBands(tiers[1], places);
  const bad = [
    ...data.links.filter((link) => link.suspects?.length).map((link) => `link ${link.a} to ${link.b} (suspect)`),
    ...data.nodes.filter(isOdd).map((node) => `${node.id} (${stateOf(node).join(", ")})`),
  ];
  const told = `The fabric: ${NAMES.map((text, n) => `${count(tiers[n].length)} ${text.toLowerCase()}`).join(", ")}, ` +
    `${plural(data.links.length, "link")}. ${bad.length ? `Not well: ${bad.slice(0, 12).join(", ")}.` : "No part is suspected."} The tables below say the same.`;
  const svg = h("svg", { class: "fabric", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": told },
    tiers.map((tier, n) => (tier.length ? h("text", { class: "tier", x: 4, y: 30 + (2 - n) * ROW + 21 }, NAMES[n]) : null)),
    bands.map(([band]) => band),
    drawn.map((link) => edge(link, places, by, middle, drawn.length > 150)),
    bands.map(([, text]) => text),
    [...places.values()].map((place) => box(place)),
    tags(drawn.reverse().filter((link, n) => n < 6 || (n < 12 && link.suspects?.length)), places, by, middle));
  return scroll("fabric", "Picture of the fabric", svg);
}

function railBands(leaves, places) {
  const rails = new Map();
  for (const leaf of leaves) {
    if (leaf.rail === null || leaf.rail === undefined) continue;
    const place = places.get(leaf.id);
    const known = rails.get(leaf.rail) ?? [Infinity, -Infinity];
    rails.set(leaf.rail, [Math.min(known[0], place.x - place.w / 2), Math.max(known[1], place.x + place.w / 2)]);
  }
  return [...rails].map(([rail, [from, until]]) => [
    h("rect", { class: "band", x: from - 6, y: ROW + 8, width: until - from + 12, height: HIGH + 44, rx: 6 }),
    h("text", { class: "rail", x: from, y: ROW + 23 }, `rail ${rail}`)]);
}

function worstOf(link) {
  const one = link.sent ? link.lost / link.sent : 0;
  const other = link.back?.sent ? link.back.lost / link.back.sent : 0;
  return Math.max(one, other) + (link.suspects?.length ? 2 : 0);
}

function kindOf(flow, by, middle) {
  if (!flow) return "none";
  return by === "loss" ? step(flow.sent, flow.lost) : slowness(flow.rtt_ns, middle);
}

// Two lines side by side, one for each direction, each of the colour of what is lost that way.
function edge(link, places, by, middle, isMany) {
  const [a, b] = [places.get(link.a), places.get(link.b)];
  if (!a || !b) return null;
  const [ends, off] = [ways(a, b), 1.6];
  const suspect = link.suspects?.length ? "suspect" : "";
  const kinds = [kindOf(link, by, middle), kindOf(link.back, by, middle)];
  const faint = isMany ? "faint" : "";
  if (isMany && !suspect && kinds.every((kind) => kind === "s0" || (kind === "none" && isBoth(link)))) {
    return h("g", { class: "edge" }, h("title", {}, told(link)), h("line", { class: "s0 faint", x1: ends[0], y1: ends[1], x2: ends[2], y2: ends[3] }));
  }
  if (isBoth(link)) {
    return h("g", { class: `edge ${suspect}` }, h("title", {}, told(link)),
      suspect ? h("line", { class: "halo", x1: ends[0], y1: ends[1], x2: ends[2], y2: ends[3] }) : null,
      h("line", { class: `${kinds[0]} ${faint}`, x1: ends[0], y1: ends[1], x2: ends[2], y2: ends[3] }));
  }
  return h("g", { class: `edge ${suspect}` }, h("title", {}, told(link)),
    suspect ? h("line", { class: "halo", x1: ends[0], y1: ends[1], x2: ends[2], y2: ends[3] }) : null,
    h("line", { class: `${kinds[0]} ${faint}`, x1: ends[0] - off, y1: ends[1], x2: ends[2] - off, y2: ends[3] }),
    h("line", { class: `${kinds[1]} ${faint}`, x1: ends[0] + off, y1: ends[1], x2: ends[2] + off, y2: ends[3] }));
}

function ways(a, b) {
  const down = a.y < b.y;
  return [a.x, down ? a.y + HIGH : a.y, b.x, down ? b.y : b.y + HIGH];
}

// What bad links lose, written near where it arrives, the worst first; what would lie over another is left to the table.
function tags(worst, places, by, middle) {
  const taken = [];
  const one = (link, flow, shares, arrow) => {
    const kind = kindOf(flow, by, middle);
    const [a, b] = [places.get(link.a), places.get(link.b)];
    if (!flow || !a || !b || kind === "s0" || kind === "none") return null;
    const [x1, y1, x2, y2] = ways(a, b);
    const text = `${arrow(y2 < y1)} ${by === "loss" ? loss(flow.sent, flow.lost) : rtt(flow.rtt_ns)}`;
    const w = text.length * 6.6 + 10;
    for (const share of shares) {
      const [x, y] = [x1 + (x2 - x1) * share, y1 + (y2 - y1) * share];
      if (taken.some(([ox, oy, ow]) => Math.abs(ox - x) < (ow + w) / 2 && Math.abs(oy - y) < 19)) continue;
      taken.push([x, y, w]);
      return h("g", { class: `tag ${kind}` }, h("rect", { x: x - w / 2, y: y - 9, width: w, height: 18, rx: 4 }),
        h("text", { x, y: y + 4, "text-anchor": "middle" }, text));
    }
    return null;
  };
  const suspect = (link) => {
    const [a, b] = [places.get(link.a), places.get(link.b)];
    if (!link.suspects?.length || !a || !b) return null;
    const [x1, y1, x2, y2] = ways(a, b);
    for (const share of [0.5, 0.4, 0.6, 0.85]) {
      const [x, y, w] = [x1 + (x2 - x1) * share, y1 + (y2 - y1) * share, 72];
      if (taken.some(([ox, oy, ow]) => Math.abs(ox - x) < (ow + w) / 2 && Math.abs(oy - y) < 19)) continue;
      taken.push([x, y, w]);
      return h("g", { class: "tag suspect" }, h("rect", { x: x - w / 2, y: y - 9, width: w, height: 18, rx: 4 }),
        h("g", { transform: `translate(${x - w / 2 + 4} ${y - 7})` }, icon("bad")), h("text", { x: x + 8, y: y + 4, "text-anchor": "middle" }, "suspect"));
    }
    return null;
  };
  return worst.map((link) => [suspect(link), isBoth(link) ? one(link, link, [0.5, 0.66, 0.34], () => "↕") : [
    one(link, link, [0.68, 0.56, 0.8], (up) => (up ? "↑" : "↓")),
    one(link, link.back, [0.32, 0.44, 0.2], (up) => (up ? "↓" : "↑")),
  ]]);
}

// Between a host and its leaf both directions are crossed by the same probes.
const isBoth = (link) => link.is_uplink && !link.back;

function told(link) {
  const back = link.back ? `; ${link.b} to ${link.a}: ${count(link.back.lost)} of ${count(link.back.sent)} lost, ${rtt(link.back.rtt_ns)}` : "";
  return `${link.a} ${isBoth(link) ? "and" : "to"} ${link.b}: ${count(link.lost)} of ${count(link.sent)} lost, ${rtt(link.rtt_ns)}${back}`;
}

function box({ node, x, y, w }) {
  const suspect = node.suspects.length > 0;
  const most = Math.max(4, Math.floor((w - (suspect || node.state === "silent" ? 24 : 6)) / 6.5));
  const text = label(node);
  const tail = Math.floor(most / 2);
  const shown = text.length > most ? `${text.slice(0, most - tail - 1)}…${text.slice(-tail)}` : text;
  const mark = node.state === "silent" ? "silent" : suspect ? "bad" : null;
  const href = opens(node);
  return h("g", { class: `node ${node.kind} ${stateOf(node).join(" ")}${href ? " opens" : ""}`, onclick: href ? () => { location.hash = href.slice(1); } : null },
    h("title", {}, `${node.kind} ${node.id}: ${stateOf(node).join(", ")}${node.members > 1 ? `, ${node.members} of them` : ""}`),
    h("rect", { x: x - w / 2, y, width: w, height: HIGH, rx: node.kind === "host" ? 3 : 9 }),
    node.kind === "group" ? h("rect", { class: "under", x: x - w / 2 + 3, y: y + 3, width: w - 6, height: HIGH - 6, rx: 3 }) : null,
    w >= 40 ? h("text", { x: mark ? x + 9 : x, y: y + 22, "text-anchor": "middle" }, shown) : null,
    mark ? h("g", { transform: w >= 40 ? `translate(${x - w / 2 + 5} ${y + 10})` : `translate(${x - 7} ${y + 10})` }, icon(mark)) : null,
    mark ? h("text", { class: "word", x, y: w >= 40 || node.kind === "leaf" ? y - 5 : y + HIGH + 14, "text-anchor": "middle" },
      `${w >= 40 ? "" : `${text.slice(0, 24)} `}${stateOf(node).join(", ")}`) : null);
}

function opens(node) {
  if (node.suspects.length) return to.incident(node.suspects[0]);
  if (node.kind === "host") return to.host(node.id);
  return node.kind === "leaf" ? to.matrix({ by: "leaf", row: node.id }) : null;
}

function links(data, by, middle) {
  const rows = data.links.flatMap((link) => [
    { from: link.a, to: link.b, ...link, suspects: link.suspects ?? [] },
    ...(link.back ? [{ ...link.back, from: link.b, to: link.a, members: link.members, suspects: link.suspects ?? [] }] : []),
  ]);
  const worth = by === "loss" ? (row) => (row.sent ? row.lost / row.sent : -1) : (row) => row.rtt_ns ?? -1;
  rows.sort((a, b) => worth(b) - worth(a) || b.suspects.length - a.suspects.length || byName(a.from, b.from));
  const odd = rows.filter((row) => row.suspects.length || !["s0", "s1", "none"].includes(by === "loss" ? step(row.sent, row.lost) : slowness(row.rtt_ns, middle)));
  const columns = [
    ["From", (row) => name(row.from)],
    ["To", (row) => [name(row.to), isBoth(row) ? h("span", { class: "quiet" }, " and back") : null]],
    ["Lost", (row) => h("span", { class: `chip ${step(row.sent, row.lost)}` }, loss(row.sent, row.lost)), "num"],
    ["Probes", (row) => (row.sent ? `${count(row.lost)} of ${count(row.sent)}` : "none"), "num"],
    ["Round trip", (row) => rtt(row.rtt_ns), "num"],
    ["Links", (row) => count(row.members ?? 1), "num"],
    ["Incident", (row) => some(row.suspects.map((id) => h("a", { href: to.incident(id), "data-key": `link ${row.from} ${row.to}` }, "suspect")), 2)],
  ];
  return [
    odd.length ? table("Those that stand out, by direction, worst first", columns, odd, { most: 60 }) : none(by === "loss" ? "No link loses as much as one probe in a thousand." : "No link takes twice as long as the middle one."),
    h("details", { "data-key": "all links" }, h("summary", {}, `All ${count(rows.length)} directions`), table("All links, by direction", columns, rows, { most: 3000 })),
  ];
}

// Silent and suspect are two things: either may be without the other.
const isOdd = (node) => node.state !== "well" || node.suspects.length > 0;
const stateOf = (node) => (isOdd(node) ? [...(node.suspects.length ? ["suspect"] : []), ...(node.state === "well" ? [] : [node.state])] : ["well"]);
const worse = (node) => (node.suspects.length ? 0 : node.state === "well" ? 2 : 1);

function parts(data) {
  const rows = [...data.nodes].sort((a, b) => worse(a) - worse(b) || tierOf(b) - tierOf(a) || byName(a.id, b.id));
  const columns = [
    ["Name", (node) => (node.kind === "host" ? h("a", { href: to.host(node.id) }, name(node.id)) : name(node.id))],
    ["Kind", (node) => (node.kind === "group" ? `${count(node.members)} hosts` : node.kind)],
    ["Rail", (node) => node.rail ?? "–", "num"],
    ["State", (node) => stateOf(node).map((each, n) => [n ? " " : "", badge(each)])],
    ["Incident", (node) => some(node.suspects.map((id) => h("a", { href: to.incident(id), "data-key": `part ${node.id}` }, name(id))), 2)],
  ];
  const odd = rows.filter(isOdd);
  return [
    odd.length ? table("Hosts and switches that are not well", columns, odd, { most: 60 }) : none("All that are drawn are well."),
    h("details", { "data-key": "all parts" }, h("summary", {}, `All ${count(rows.length)} parts`), table("All hosts, groups of hosts and switches", columns, rows, { most: 3000 })),
  ];
}
