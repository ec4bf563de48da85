"use strict";
// What both views need. Text reaches the page as text nodes only, never as markup.

const NAMESPACE = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

const make = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) => fill(document.createElementNS(NAMESPACE, tag), attributes, children);
const number = (value, digits = 3) => value.toFixed(digits).replace(/^-(0\.0+)$/, "$1"); // -0.000 is 0.000
const scoreOf = (index, name) => index.scores.find((score) => score.name === name);
const signed = (value) => (value > 0 ? "+" : "\u2212") + Math.abs(value);

function bytes(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

// A block of this file: JSON, deflated, in base64.
async function block(id) {
  const packed = new Blob([bytes(document.getElementById(id).textContent)]);
  const stream = packed.stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// Words for a mouse and for a finger: the style sheet shows those that fit the device.
const byDevice = (mouse, touch) => [make("span", { class: "pointer" }, mouse), make("span", { class: "touch" }, touch)];

// The short name of a score; its full name and its meaning stand in the tooltip.
const term = ({ label, full, meaning }) => make("abbr", { title: full ? `${full}: ${meaning}` : meaning }, label);

// What a phone says below a table that leaves columns out there.
const wider = () => make("p", { class: "soft only-phone controls" }, "A wider screen shows more columns.");

// A box around something wide, which scrolls by the keyboard too, and says so where it does.
function scroller(label, ...children) {
  const box = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, ...children);
  const hint = make("p", { class: "soft hint controls" }, ...byDevice("Scroll sideways to see all columns.", "Swipe sideways to see all columns."));
  new ResizeObserver(() => { hint.hidden = box.scrollWidth <= box.clientWidth; }).observe(box);
  hint.hidden = true;
  return make("div", {}, hint, box);
}

// One page of a long list at a time; `show(first, last)` draws it.
function pager(total, size, show) {
  const box = make("div", { class: "pager" });
  const label = make("span", { "aria-live": "polite" });
  let at = 0;
  const back = make("button", { type: "button", onclick: () => turn(at - 1) }, "\u2190 Previous");
  const on = make("button", { type: "button", onclick: () => turn(at + 1) }, "Next \u2192");
  function turn(page) {
    at = Math.max(0, Math.min(page, Math.ceil(total / size) - 1));
    const [first, last] = [at * size, Math.min(total, (at + 1) * size)];
    back.disabled = at === 0;
    on.disabled = last >= total;
    label.textContent = `${first + 1} to ${last} of ${total}`;
    show(first, last);
  }
  box.append(back, on, label);
  box.hidden = total <= size;
  return { box, turn, reach: (i) => { if (Math.floor(i / size) !== at) turn(Math.floor(i / size)); },
    resize: (count) => { total = count; box.hidden = total <= size; turn(0); }, again: () => turn(at), whole: (most) => show(0, Math.min(total, most)) };
}

// A chart of x by y units with ticks, x from `start` and y from `base`; returns the svg and the two scales. An axis named in `cells` counts chunks:
// its ticks stand in the middle of the unit that a number names, from 1.
function chart(title, columns, rows, { width = 560, height = 300, xlabel = "", ylabel = "", cells = "", start = 0, base = 0 } = {}) {
  const [left, top, right, bottom] = [52, 8, width - 8, height - 34];
  const x = (value) => left + ((value - start) / (columns - start)) * (right - left);
  const y = (value) => bottom - ((value - base) / (rows - base)) * (bottom - top);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  svg.append(draw("path", { class: "axis", fill: "none", d: `M${left} ${top}V${bottom}H${right}` }));
  const text = (px, py, value, anchor) => svg.append(draw("text", { x: px, y: py, "text-anchor": anchor }, value));
  for (const [at, label] of ticks(start, columns, cells.includes("x"))) text(x(at), bottom + 14, label, "middle");
  for (const [at, label] of ticks(base, rows, cells.includes("y"))) text(left - 5, y(at) + 4, label, "end");
  text((left + right) / 2, height - 5, xlabel, "middle");
  svg.append(draw("text", { x: 0, y: 0, transform: `translate(11 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, ylabel));
  return { svg, x, y, bottom, top, left, right };
}

// [position, label] of about five ticks from `start` to `end`.
function ticks(start, end, cells) {
  const rough = cells ? Math.max(1, end / 6) : (end - start) / 5;
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough);
  const found = [];
  for (let k = Math.ceil(start / step); k * step <= end * (1 + 1e-9); k += 1) found.push(k * step);
  if (!cells) return found.map((value) => [value, String(Number(value.toPrecision(3)))]);
  return (step === 1 ? found.slice(1) : [1, ...found.slice(1)]).map((value) => [value - 0.5, String(value)]);
}
