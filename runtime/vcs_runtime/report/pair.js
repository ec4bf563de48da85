"use strict";
// One pair: texts side by side, what each part cost, the matrix, the paths, the penalties, the formulas.

const GLYPHS = { "in place": "\u2713", covered: "\u2713", shifted: "\u21e2", moved: "\u21c5", "weakly supported": "?", missing: "\u2205", repeated: "\u21bb" };
const LIST_PAGE = 100;

function showPair(pair, index, place) {
  const { vcs: whole, ...parts } = pair.sentences;
  const sides = { generated: pair.generated, reference: pair.reference };
  const lists = {};
  const matrix = heatMap(pair, mark);
  place.append(
    make("h1", {}, make("bdi", {}, pair.id === null ? index.title : pair.id)),
    make("dl", { class: "headline" }, ...index.scores.filter((score) => score.headline).map((score) =>
      make("div", {}, make("dt", {}, make("abbr", { title: score.meaning }, score.label)), make("dd", {}, number(pair.scores[score.name]))))),
    make("p", { id: "whole" }, whole),
    costBar(pair, index),
    make("h2", {}, "What pulled it down"),
    make("ul", { class: "sentences" }, ...Object.values(parts).map((text) => make("li", {}, text))),
    make("div", { class: "sides" }, list("reference", "generated"), list("generated", "reference")),
    make("p", { class: "soft controls" }, "Point at a chunk, or walk with the arrow keys: its match is marked, Enter goes there. Chunks are shown as they are compared."),
    make("dl", { class: "soft" }, ...Object.entries(index.verdicts).flatMap(([name, text]) => [make("dt", {}, `${GLYPHS[name]} ${name}`), make("dd", {}, text)])),
    make("h2", {}, "Similarity, windows and matches"), matrix.box,
    make("h2", {}, "The narrative, and where it should run"),
    make("div", { class: "figures" }, path("generated", "reference"), path("reference", "generated")),
    make("h2", {}, "What distance costs"),
    make("div", { class: "figures" }, penalties("generated"), penalties("reference")),
    make("h2", {}, "How the scores combine"), formulas(pair, index),
    make("h2", {}, "Signature"), make("p", {}, make("code", {}, pair.signature)),
    make("p", { class: "soft" }, pair.about));
  matrix.paint();

  function list(name, other) {
    const side = sides[name];
    const items = make("ol", { "aria-label": `${name} chunks` });
    items.addEventListener("keydown", (event) => walk(event, name, other));
    const page = pager(side.text.length, LIST_PAGE, (first, last) => {
      items.replaceChildren(...Array.from({ length: last - first }, (_, k) => chunk(name, first + k)));
      if (items.firstChild) items.firstChild.tabIndex = 0;
    });
    lists[name] = { items, page, everything: () => items.replaceChildren(...side.text.map((_, i) => chunk(name, i))) };
    page.turn(0);
    const counts = Object.entries(side.counts).map(([verdict, count]) => `${count} ${verdict}`).join(", ");
    const title = name[0].toUpperCase() + name.slice(1);
    return make("section", {}, make("h2", {}, `${title}: ${side.text.length} chunk${side.text.length > 1 ? "s" : ""}`), make("p", { class: "soft" }, counts), page.box, items);
  }

  function chunk(name, i) {
    const side = sides[name];
    const verdict = side.verdict[i];
    const about = `${number(side.similarity[i])} similar; ${placeOf(side, i)}`;
    return make("li", { class: `chunk ${verdict.replace(" ", "-")}`, id: `${name}-${i}`, tabindex: "-1",
      onmouseenter: () => mark(name, i), onfocus: () => mark(name, i) },
      make("span", { class: "number" }, String(i + 1)), make("span", { dir: "auto" }, side.text[i]),
      make("span", { class: "about" }, make("span", { class: "verdict" }, `${GLYPHS[verdict]} ${verdict}`), `, ${about}`));
  }

  function mark(name, i) {
    const other = name === "generated" ? "reference" : "generated";
    for (const node of place.querySelectorAll(".here, .partner, .back")) node.classList.remove("here", "partner", "back");
    document.getElementById(`${name}-${i}`)?.classList.add("here");
    const partner = sides[name].match[i];
    lists[other].page.reach(partner);
    sides[other].match.forEach((match, k) => { if (match === i) document.getElementById(`${other}-${k}`)?.classList.add("back"); });
    const node = document.getElementById(`${other}-${partner}`);
    node.classList.add("partner");
    const box = lists[other].items;
    // The box alone is scrolled: the page must not jump under the pointer.
    if (node.offsetTop < box.scrollTop || node.offsetTop + node.offsetHeight > box.scrollTop + box.clientHeight) {
      box.scrollTop = node.offsetTop - box.clientHeight / 3;
    }
    matrix.point(name === "generated" ? [partner, i] : [i, partner]);
  }

  function walk(event, name, other) {
    const here = document.activeElement;
    const i = Number(here.id.slice(name.length + 1));
    const steps = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: sides[name].text.length - 1 };
    let [side, goal] = [name, steps[event.key]];
    if (event.key === "Enter") [side, goal] = [other, sides[name].match[i]];
    if (goal === undefined || goal < 0 || goal >= sides[side].text.length) return;
    event.preventDefault();
    lists[side].page.reach(goal);
    const node = document.getElementById(`${side}-${goal}`);
    for (const item of lists[side].items.children) item.tabIndex = item === node ? 0 : -1;
    node.focus();
  }

  function path(name, other) {
    const side = sides[name];
    const [count, length] = [side.text.length, sides[other].text.length];
    const c = chart(`The ${name} text on the ${other}'s timeline`, count, length, { xlabel: `${name} chunk`, ylabel: `${other} chunk`, cells: "xy" });
    const [w, h] = [c.x(1) - c.x(0), c.y(0) - c.y(1)];
    const at = (i, row) => `${(c.x(i) + w / 2).toFixed(1)} ${(c.y(row) - h / 2).toFixed(1)}`;
    const line = (rows) => rows.map((row, i) => at(i, row)).join("L");
    c.svg.append(draw("path", { class: "window", d: side.start.map((start, i) =>
      `M${c.x(i).toFixed(1)} ${c.y(start).toFixed(1)}h${w.toFixed(1)}V${c.y(side.end[i]).toFixed(1)}h${(-w).toFixed(1)}z`).join("") }));
    if (side.floor.length) {
      const back = side.ceiling.map((row, i) => at(i, row)).reverse().join("L");
      c.svg.append(draw("path", { class: "band", d: `M${line(side.floor)}L${back}z` }),
        draw("path", { class: "ideal", d: `M${line(side.floor)}` }), draw("path", { class: "ideal", d: `M${line(side.ceiling)}` }));
    }
    c.svg.append(draw("path", { class: "path", d: `M${line(side.match)}` }));
    const radius = Math.max(1.5, Math.min(4, w / 2));
    side.match.forEach((row, i) => {
      const [cx, cy] = at(i, row).split(" ");
      c.svg.append(draw("circle", { class: `dot ${side.verdict[i].replace(" ", "-")}`, cx, cy, r: radius }));
    });
    const caption = `${name} text: path ${number(side.actual_length, 2)}, ideal ${number(side.floor_length, 2)} (floor) to ${number(side.ceiling_length, 2)} (ceiling): NAS-L ${number(side.nas_l)}. Grey: where each match was expected.`;
    return make("figure", {}, c.svg, make("figcaption", {}, caption));
  }

  function penalties(name) {
    const side = sides[name];
    const top = Math.max(...side.penalty, 1e-9);
    const flat = top <= 1e-9;
    const c = chart(`Penalties of the ${name} chunks`, side.text.length, flat ? 1 : top, { height: 190, xlabel: `${name} chunk`, ylabel: "penalty", cells: "x" });
    c.svg.append(draw("path", { class: "cost", d: side.penalty.map((value, i) => {
      const [x0, x1] = [c.x(i + 0.12), c.x(i + 0.88)].map((v) => v.toFixed(1));
      return value > 0 ? `M${x0} ${c.bottom}V${c.y(value).toFixed(1)}H${x1}V${c.bottom}z` : "";
    }).join("") }));
    const caption = `${name} text: ${number(side.total_penalty)} of at most ${number(side.max_penalty)}: NAS-D ${number(side.nas_d)}.` + (flat ? " Nothing is out of place." : "");
    return make("figure", {}, c.svg, make("figcaption", {}, caption));
  }

  return { print: () => Object.values(lists).forEach((side) => side.everything()), restore: () => Object.values(lists).forEach((side) => side.page.again()) };
}

function placeOf(side, i) {
  if (side.repeats[i] !== null) return `repeats ${side.repeats[i] + 1}`;
  if (["missing", "weakly supported"].includes(side.verdict[i])) return `nearest: ${side.match[i] + 1}`;
  const [start, end] = [side.start[i] + 1, side.end[i]];
  const expected = start === end ? String(start) : `${start}\u2013${end}`;
  const offset = side.offset[i] ? ` (${signed(side.offset[i])})` : "";
  return `expected at ${expected}, found at ${side.match[i] + 1}${offset}`;
}

function costBar({ scores, costs }, index) {
  const bar = make("div", { class: "bar", role: "img", "aria-label": "VCS and what each part cost" });
  const list = make("ul", { class: "costs" });
  for (const [name, value] of [["vcs", scores.vcs], ...Object.entries(costs)]) {
    const { label } = scoreOf(index, name);
    const part = make("span", { class: name, title: `${label} ${number(value)}` });
    part.style.flexGrow = Math.max(0, value);
    bar.append(part);
    list.append(make("li", {}, make("span", { class: `swatch ${name}` }), `${label}${name in costs ? " cost" : ""} ${number(value)}`));
  }
  return make("div", {}, bar, list);
}

// Cividis at eleven points: readable without red and green, even in grey.
const SCALE = ["00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838"]
  .map((hex) => [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16)));

function shade(value) {
  const at = Math.max(0, Math.min(1, value)) * (SCALE.length - 1);
  const low = Math.min(SCALE.length - 2, Math.floor(at));
  return SCALE[low].map((part, k) => part + (SCALE[low + 1][k] - part) * (at - low));
}

function heatMap(pair, mark) {
  const { rows, columns, step } = pair.matrix;
  const values = new Int16Array(bytes(pair.matrix.values).buffer);
  const [nRef, nGen] = [pair.reference.text.length, pair.generated.text.length];
  const cell = Math.max(1, Math.min(56, Math.floor(800 / Math.max(nRef, nGen))));
  const [width, height] = [Math.max(nGen * cell, 1), Math.max(nRef * cell, 1)];
  const canvas = make("canvas", { width, height, role: "img", "aria-label": "similarity of all chunks" });
  const context = canvas.getContext("2d");
  const readout = make("p", { class: "readout", "aria-live": "polite" }, "\u00a0");
  const small = make("canvas", { width: columns, height: rows });
  const image = new ImageData(columns, rows);
  values.forEach((value, k) => image.data.set([...shade(value / 10000), 255], 4 * k));
  small.getContext("2d").putImageData(image, 0, 0);
  const layers = {};
  const controls = make("p", { class: "controls" }, ...[["windows", "where generated chunks are expected"], ["precision", "matches of generated chunks \u25cf"],
    ["recall", "matches of reference chunks \u25a1"]].map(([name, text]) => {
    layers[name] = make("input", { type: "checkbox", checked: true, onchange: () => paint() });
    return make("label", {}, layers[name], ` ${text}`);
  }));
  let target = null;

  function paint() {
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, width, height);
    const thin = Math.max(1, cell / 12);
    if (layers.windows.checked) {
      context.strokeStyle = "#ffffff"; context.lineWidth = Math.max(1, thin);
      pair.generated.start.forEach((start, j) => context.strokeRect(j * cell + 0.5, start * cell + 0.5, cell - 1, (pair.generated.end[j] - start) * cell - 1));
    }
    const spot = (i, j, sides, hollow) => {
      const [x, y, r] = [(j + 0.5) * cell, (i + 0.5) * cell, Math.max(1.5, cell / 4)];
      context.beginPath();
      if (hollow) context.rect(x - r * 1.4, y - r * 1.4, r * 2.8, r * 2.8); else context.arc(x, y, r, 0, 7);
      context.strokeStyle = hollow ? "#ff5a1f" : "#000"; context.fillStyle = "#ffffff"; context.lineWidth = Math.max(1, thin * 1.5);
      if (!hollow) context.fill();
      context.stroke();
    };
    if (layers.precision.checked) pair.generated.match.forEach((i, j) => spot(i, j, "generated", false));
    if (layers.recall.checked) pair.reference.match.forEach((j, i) => spot(i, j, "reference", true));
    if (target) {
      context.strokeStyle = "#ff5a1f"; context.lineWidth = 1;
      context.strokeRect(0.5, target[0] * cell + 0.5, width - 1, cell - 1);
      context.strokeRect(target[1] * cell + 0.5, 0.5, cell - 1, height - 1);
    }
  }
  function point([i, j]) {
    target = [i, j];
    const value = values[Math.floor(i / step[0]) * columns + Math.floor(j / step[1])] / 10000;
    readout.textContent = `reference ${i + 1}, generated ${j + 1}: ${number(value)}`;
    paint();
  }
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const j = Math.floor(((event.clientX - box.left) / box.width) * nGen);
    const i = Math.floor(((event.clientY - box.top) / box.height) * nRef);
    if (i >= 0 && j >= 0 && i < nRef && j < nGen) point([i, j]);
  });
  canvas.addEventListener("click", () => { if (target) { const goal = [...target]; mark("generated", goal[1]); point(goal); } });
  const legend = make("canvas", { width: 200, height: 12 });
  const strip = legend.getContext("2d");
  for (let x = 0; x < 200; x += 1) { strip.fillStyle = `rgb(${shade(x / 199).map(Math.round)})`; strip.fillRect(x, 0, 1, 12); }
  const coarse = step[0] * step[1] > 1 ? ` Each cell is the largest of ${step[0]} x ${step[1]}.` : "";
  const box = make("figure", {}, controls, canvas, readout,
    make("figcaption", {}, legend, `Similarity from 0 or less (dark) to 1. Down: the ${nRef} reference chunks; across: the ${nGen} generated.${coarse}`));
  return { box, paint, point };
}

function formulas({ scores: s, regularizer: r }, index) {
  const n = (name) => number(s[name]);
  const f1 = (name) => `F1 of precision ${n(`${name}_precision`)} and recall ${n(`${name}_recall`)}`;
  const larger = s.sas > s.nas ? "sas" : "nas";
  const texts = {
    vcs: `margin / ${larger.toUpperCase()} = ${n("margin")} / ${n(larger)}, at least 0`,
    margin: `SAS + NAS \u2212 1 = ${n("sas")} + ${n("nas")} \u2212 1`,
    gas: "cosine of the two whole texts",
    las: f1("las"),
    sas: `(GAS \u2212 (1 \u2212 LAS)) / LAS = (${n("gas")} \u2212 (1 \u2212 ${n("las")})) / ${n("las")}, at least 0`,
    nas: `(NAS F1 \u2212 R) / (1 \u2212 R) = (${n("nas_f1")} \u2212 ${n("window_regularizer")}) / (1 \u2212 ${n("window_regularizer")}), at least 0`,
    nas_f1: `F1 of NAS-D ${n("nas_d")} and NAS-L ${n("nas_l")}`,
    nas_d: f1("nas_d"),
    nas_l: f1("nas_l"),
    window_regularizer: `R: windows cover ${r.area} of ${r.grid} cells (${number(r.area / r.grid)}), ${number(r.least)} at least`,
  };
  return make("dl", { id: "formulas" }, ...index.scores.filter(({ name }) => name in texts).flatMap(({ name, label }) =>
    [make("dt", {}, `${label} ${n(name)}`), make("dd", { class: "soft" }, texts[name])]));
}
