// SPDX-License-Identifier: Apache-2.0
// The only place that makes elements. Names come from containers, pods and switches that anybody may
// have named: text is set as text, and only the attributes below can be set at all.

const SVG = "http://www.w3.org/2000/svg";
const SHAPES = new Set(["svg", "g", "path", "circle", "rect", "line", "text", "polyline", "title"]);
const ALLOWED = new Set([
  "id", "class", "title", "lang", "dir", "role", "tabindex", "type", "for", "name", "value", "list",
  "placeholder", "autocomplete", "spellcheck", "maxlength", "colspan", "rowspan", "scope", "datetime",
  "open", "disabled", "selected", "checked", "required", "download", "hidden",
  "viewBox", "width", "height", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "d", "points",
  "text-anchor", "transform", "dominant-baseline", "preserveAspectRatio",
]);

export function h(tag, attributes, ...children) {
  const made = SHAPES.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) {
      if (typeof value !== "function") throw new TypeError(`${name} is no function`);
      made.addEventListener(name.slice(2), value);
    } else if (name === "href") {
      made.setAttribute("href", safe(value));
    } else if (ALLOWED.has(name) || /^(aria|data)-[a-z-]+$/.test(name)) {
      made.setAttribute(name, value === true ? "" : String(value));
    } else {
      throw new TypeError(`attribute ${name} is not set here`);
    }
  }
  add(made, children);
  return made;
}

function add(into, children) {
  for (const each of children) {
    if (Array.isArray(each)) add(into, each);
    else if (each instanceof Node) into.append(each);
    else if (each !== null && each !== undefined && each !== false) into.append(String(each));
  }
}

// A link leads to a view of this page, or to a path of this analyzer; a runbook may lie elsewhere.
function safe(href) {
  const text = String(href);
  if (text.startsWith("#/") || /^\/(?![/\\])/.test(text)) return text;
  try {
    const url = new URL(text);
    if (url.protocol === "https:" || url.protocol === "http:") return url.href;
  } catch {
    // no URL at all
  }
  return "#/now";
}

// Replace what is in `into`, and leave the reader where they are: focus, open details, scrolled tables.
export function replace(into, ...children) {
  const active = document.activeElement;
  const focus = into.contains(active) ? keyOf(active) : null;
  const opened = new Map();
  const scrolled = new Map();
  for (const each of into.querySelectorAll("details[data-key]")) opened.set(each.dataset.key, each.open);
  for (const each of into.querySelectorAll(".scroll[data-key]")) {
    scrolled.set(each.dataset.key, [each.scrollLeft, each.scrollTop]);
  }
  const fresh = document.createDocumentFragment();
  add(fresh, children);
  into.replaceChildren(fresh);
  for (const each of into.querySelectorAll("details[data-key]")) {
    if (opened.has(each.dataset.key)) each.open = opened.get(each.dataset.key);
  }
  for (const each of into.querySelectorAll(".scroll[data-key]")) {
    const place = scrolled.get(each.dataset.key);
    if (place) [each.scrollLeft, each.scrollTop] = place;
  }
  if (focus === null) return;
  for (const each of into.querySelectorAll("a, button, input, select, summary, [tabindex]")) {
    if (keyOf(each) === focus) {
      each.focus({ preventScroll: true });
      return;
    }
  }
  into.focus({ preventScroll: true });
}

function keyOf(element) {
  const named = element.id || element.dataset?.key || element.getAttribute?.("href");
  if (named) return named;
  const parent = element.parentElement?.closest("[data-key]");
  return parent ? `${parent.dataset.key} ${element.tagName}` : null;
}
