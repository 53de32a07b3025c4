// SPDX-License-Identifier: Apache-2.0
// Numbers, times and names as people read them.

import { h } from "./dom.js";

const NONE = "–";
const DAY = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const ZONE = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });

export function zone() {
  const parts = ZONE.formatToParts(new Date());
  return parts.find((each) => each.type === "timeZoneName")?.value ?? "local";
}

export const isUtc = () => new Date().getTimezoneOffset() === 0;

export function clock(ns) {
  return ns === null || ns === undefined ? NONE : CLOCK.format(new Date(ns / 1e6));
}

// An instant in the viewer's zone; `full` also by UTC and with its day.
export function time(ns, full = false) {
  if (ns === null || ns === undefined) return h("span", { class: "quiet" }, NONE);
  const at = new Date(ns / 1e6);
  const iso = at.toISOString();
  const utc = `${iso.slice(0, 10)} ${iso.slice(11, 19)} UTC`;
  const today = DAY.format(at) === DAY.format(new Date());
  const day = full || !today ? `${DAY.format(at)} ` : "";
  const told = `${day}${CLOCK.format(at)}`;
  if (!full) return h("time", { datetime: iso, title: utc }, told);
  if (isUtc()) return h("time", { datetime: iso }, utc);
  return h("time", { datetime: iso }, `${told} ${zone()}`, h("span", { class: "quiet" }, ` (${utc})`));
}

// How long ago, or how long: "42 s", "3 min", "2 h 5 min".
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  const s = Math.max(0, seconds);
  if (s < 10) return `${Math.round(s * 10) / 10} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
  return `${Math.round(s / 86400)} days`;
}

const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function count(value) {
  return value === null || value === undefined ? NONE : GROUPED.format(value);
}

export function number(value) {
  if (value === null || value === undefined) return NONE;
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return Math.abs(value) >= 1e15 ? value.toExponential(3) : GROUPED.format(value);
  return Math.abs(value) >= 100 ? GROUPED.format(value) : String(Number(value.toPrecision(3)));
}

export function rtt(ns) {
  if (ns === null || ns === undefined) return NONE;
  if (ns < 1e6) return `${trim(ns / 1e3)} µs`;
  return ns < 1e9 ? `${trim(ns / 1e6)} ms` : `${trim(ns / 1e9)} s`;
}

const trim = (value) => String(value >= 100 ? Math.round(value) : Number(value.toPrecision(2)));

// Share of what was lost. Losses are never rounded to none, nor some to all.
export function loss(sent, lost) {
  if (!sent) return "not probed";
  if (!lost) return "0 %";
  if (lost >= sent) return "100 %";
  const share = (100 * lost) / sent;
  if (share < 0.01) return "<0.01 %";
  if (share > 99.9) return ">99.9 %";
  return `${Number(share.toPrecision(2))} %`;
}

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let rest = value;
  let unit = 0;
  while (rest >= 1024 && unit < units.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${unit ? Number(rest.toPrecision(3)) : rest} ${units[unit]}`;
}

// Some is never rounded to all, nor to none.
export function share(value) {
  if (value === null || value === undefined) return NONE;
  if (value > 0.99 && value < 1) return value > 0.999 ? ">99.9 %" : `${Math.floor(value * 1000) / 10} %`;
  return value > 0 && value < 0.01 ? "<1 %" : `${Math.round(value * 100)} %`;
}

// A number in words where its name says its unit.
export function measure(name, value) {
  if (value === null || value === undefined) return NONE;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "object") {
    const inner = Array.isArray(value) ? value.map((each) => measure("", each)) :
      Object.entries(value).map(([key, each]) => `${label(key)}: ${measure(key, each)}`);
    return inner.length ? inner.join(", ") : "none";
  }
  if (typeof value !== "number") return String(value);
  if (name.endsWith("_bytes")) return bytes(value);
  if (name.endsWith("_kb")) return bytes(value * 1024);
  if (name.endsWith("_share")) return `${Number((value * 100).toPrecision(2))} %`;
  if (name.endsWith("_ns") && value > 1e17) return clock(value);
  if (name.endsWith("_ns")) return rtt(value);
  if (name.endsWith("_us")) return rtt(value * 1e3);
  if (name.endsWith("_ms")) return value < 10000 ? `${number(value)} ms` : span(value / 1e3);
  if (name.endsWith("_s") && !name.endsWith("per_s")) return span(value);
  return number(value);
}

export function label(name) {
  return String(name).replace(/_(bytes|kb|share|ns|us|ms)$/, "").replaceAll("_", " ");
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

const BY_NAME = new Intl.Collator("en", { numeric: true });
export const byName = (a, b) => BY_NAME.compare(a, b);
