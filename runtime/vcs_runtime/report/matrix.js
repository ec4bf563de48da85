"use strict";
// The figures of a pair: the similarity matrix, the order of the narrative, the penalties.

// Cividis at ten points: readable without red and green, even in grey.
const SCALE = ["00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838"]
  .map((hex) => [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16)));
const LARGEST_CELL = 64;
const [LEFT, TOP, RIGHT, BOTTOM] = [50, 6, 8, 40]; // margins of the matrix

// The colour of a value between 0 and 1.
function shade(value) {
  const at = Math.max(0, Math.min(1, value)) * (SCALE.length - 1);
  const low = Math.min(SCALE.length - 2, Math.floor(at));
  return SCALE[low].map((part, k) => part + (SCALE[low + 1][k] - part) * (at - low));
}

// Whether black can be read better than white on a colour: its relative luminance decides.
function isBright(colour) {
  const [r, g, b] = colour.map((part) => (part <= 10 ? part / 3294.6 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179;
}

// The matrix has a canvas with a pixel for each cell, which is enlarged, and marks and axes above it.
function heatMap(pair, width, column, mark) {
  const { rows, columns, step } = pair.matrix;
  const values = new Int32Array(bytes(pair.matrix.values).buffer);
  const [nRef, nGen] = [pair.reference.text.length, pair.generated.text.length];
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) [least, most] = [Math.min(least, value), Math.max(most, value)];
  const colour = (value) => shade(most > least ? (value - least) / (most - least) : 0.5);
  // Beside the narrative, a wide matrix would have cells too narrow, and a flat one would leave its column empty.
  const wide = nGen > 2.5 * nRef && (nGen > column / 8 || nRef * LARGEST_CELL < 200);
  const tallest = Math.min(1200, Math.max(width < 900 ? 460 : 560, 3 * nRef));
  const w = Math.min(LARGEST_CELL, ((wide ? width : column) - LEFT - RIGHT) / nGen);
  const h = Math.min(LARGEST_CELL, Math.max(Math.min(w, tallest / nRef), 320 / nRef));
  const [right, bottom] = [LEFT + nGen * w, TOP + nRef * h];
  const [whole, high] = [Math.max(right + RIGHT, LEFT + 130), Math.max(bottom, TOP + 90) + BOTTOM]; // room for the labels

  const canvas = make("canvas", { width: columns, height: rows, "aria-hidden": "true" });
  const image = new ImageData(columns, rows);
  values.forEach((value, k) => image.data.set([...colour(value), 255], 4 * k));
  canvas.getContext("2d").putImageData(image, 0, 0);
  Object.assign(canvas.style, { left: `${(100 * LEFT) / whole}%`, top: `${(100 * TOP) / high}%`, width: `${(100 * nGen * w) / whole}%`, height: `${(100 * nRef * h) / high}%` });

  const range = [least, most].map((value) => number(value / 1e9));
  const svg = draw("svg", { viewBox: `0 0 ${whole} ${high}`, role: "img",
    "aria-label": `Similarity of ${nRef} reference ${pair.noun}s, down, and ${nGen} generated ${pair.noun}s, across: from ${range.join(" to ")}` });
  const write = (x, y, text, attributes) => svg.append(draw("text", { x: x.toFixed(1), y: y.toFixed(1), ...attributes }, text));
  for (const [at, label] of ticks(0, nGen, true)) write(LEFT + at * w, bottom + 14, label, { "text-anchor": "middle" });
  for (const [at, label] of ticks(0, nRef, true)) write(LEFT - 5, TOP + at * h + 4, label, { "text-anchor": "end" });
  write((LEFT + Math.max(right, LEFT + 100)) / 2, bottom + 32, `generated ${pair.noun}`, { "text-anchor": "middle" });
  svg.append(draw("text", { transform: `translate(12 ${(TOP + Math.max(90, bottom - TOP) / 2).toFixed(1)}) rotate(-90)`, "text-anchor": "middle" }, `reference ${pair.noun}`));
  const small = step[0] * step[1] === 1 && w >= 36 && h >= 30;
  if (small) {
    values.forEach((value, k) => write(LEFT + ((k % columns) + 0.5) * w, TOP + (Math.floor(k / columns) + 0.82) * h, number(value / 1e9, 2),
      { class: isBright(colour(value)) ? "on-bright" : "on-dark", "text-anchor": "middle" }));
  }
  const r = Math.max(1.4, Math.min(5, w / 3.2, h / 3.2));
  const middle = (i, j) => [LEFT + (j + 0.5) * w, TOP + (i + (small ? 0.34 : 0.5)) * h];
  const frame = (x, y, wide, high) => `M${x.toFixed(1)} ${y.toFixed(1)}h${wide.toFixed(1)}v${high.toFixed(1)}h${(-wide).toFixed(1)}z`;
  const square = (i, j) => { const [x, y] = middle(i, j); return frame(x - 1.4 * r, y - 1.4 * r, 2.8 * r, 2.8 * r); };
  // A line on any colour: light over dark.
  const lines = (name, d) => draw("g", { class: name }, draw("path", { class: "under", d }), draw("path", { class: "over", d }));
  const layers = {
    windows: lines("windows", pair.generated.start.map((start, j) => frame(LEFT + j * w + 0.5, TOP + start * h + 0.5, w - 1, (pair.generated.end[j] - start) * h - 1)).join("")),
    precision: draw("path", { class: "precision", d: pair.generated.match.map((i, j) => outline("covered", ...middle(i, j), r)).join("") }),
    recall: lines("recall", pair.reference.match.map((j, i) => square(i, j)).join("")),
  };
  const cross = lines("cross", "");
  svg.append(...Object.values(layers), cross);
  const key = (...nodes) => draw("svg", { class: "icon", viewBox: "0 0 14 14", "aria-hidden": "true" }, ...nodes);
  const controls = make("p", { class: "controls layers" }, ...[
    ["windows", null, `windows: where generated ${pair.noun}s are expected`],
    ["precision", key(draw("path", { class: "precision", d: outline("covered", 7, 7, 5) })), `matches of generated ${pair.noun}s`],
    ["recall", key(lines("recall", frame(2, 2, 10, 10))), `matches of reference ${pair.noun}s`],
  ].map(([name, sign, text]) => make("label", {}, make("input", { type: "checkbox", checked: true,
    onchange: (event) => layers[name].toggleAttribute("hidden", !event.target.checked) }), " ", sign, sign && " ", text)));

  const readout = make("p", { class: "readout", "aria-live": "polite" }, "\u00a0");
  let target = null;
  function point(i, j) {
    target = [i, j];
    const value = values[Math.floor(i / step[0]) * columns + Math.floor(j / step[1])] / 1e9;
    readout.textContent = `reference ${i + 1}, generated ${j + 1}: similarity ${number(value)}`;
    for (const path of cross.children) path.setAttribute("d", frame(LEFT, TOP + i * h, nGen * w, h) + frame(LEFT + j * w, TOP, w, nRef * h));
  }
  const plot = make("div", { class: "heat" }, canvas, svg);
  plot.style.maxWidth = `${whole}px`;
  plot.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const j = Math.floor(((event.clientX - box.left) / box.width) * nGen);
    const i = Math.floor(((event.clientY - box.top) / box.height) * nRef);
    if (i >= 0 && j >= 0 && i < nRef && j < nGen) point(i, j);
  });
  plot.addEventListener("click", () => { if (target) { const goal = [...target]; mark("generated", goal[1]); point(...goal); } });

  const strip = make("canvas", { width: 200, height: 1, "aria-hidden": "true" });
  const context = strip.getContext("2d");
  for (let x = 0; x < 200; x += 1) { context.fillStyle = `rgb(${shade(x / 199).map(Math.round)})`; context.fillRect(x, 0, 1, 1); }
  const coarse = step[0] * step[1] > 1 ? ` Each cell is the largest of ${step[0]} x ${step[1]}.` : "";
  const box = make("figure", { class: "drawn" }, controls, plot, readout,
    make("figcaption", {}, make("span", { class: "scale" }, make("span", {}, "similarity"),
      ...(most > least ? [make("span", {}, range[0]), strip, make("span", {}, range[1])] : [make("span", {}, range[0])])), coarse));
  return { box, point, wide };
}

function narrative(pair, name, index, width) {
  const other = name === "generated" ? "reference" : "generated";
  const side = pair[name];
  const [count, length] = [side.text.length, pair[other].text.length];
  const c = chart(`The ${name} text on the ${other}'s timeline`, count, length, { width, xlabel: `${name} ${pair.noun}`, ylabel: `${other} ${pair.noun}`, cells: "xy" });
  const [w, h] = [c.x(1) - c.x(0), c.y(0) - c.y(1)];
  const at = (i, row) => [c.x(i) + w / 2, c.y(row) - h / 2];
  const line = (points) => points.map((point) => point.map((v) => v.toFixed(1)).join(" ")).join("L");
  const along = (rows) => rows.map((row, i) => at(i, row));
  c.svg.append(draw("path", { class: "window", d: side.start.map((start, i) =>
    `M${c.x(i).toFixed(1)} ${c.y(start).toFixed(1)}h${w.toFixed(1)}V${c.y(side.end[i]).toFixed(1)}h${(-w).toFixed(1)}z`).join("") }));
  if (side.floor.length) {
    c.svg.append(draw("path", { class: "band", d: `M${line([...along(side.floor), ...along(side.ceiling).reverse()])}z` }),
      ...[side.floor, side.ceiling].map((rows) => draw("path", { class: "ideal", d: `M${line(along(rows))}` })));
  }
  c.svg.append(draw("path", { class: "path", d: `M${line(along(side.match))}` }));
  const radius = Math.max(1.8, Math.min(5, w / 2));
  const verdicts = present(index, side);
  for (const verdict of verdicts) {
    const chunks = side.match.map((row, i) => [row, i]).filter(([, i]) => side.verdict[i] === verdict);
    c.svg.append(draw("path", { class: `dot ${slug(verdict)}`, d: chunks.map(([row, i]) => outline(verdict, ...at(i, row), radius)).join("") }));
  }
  const caption = `The ${name} text: path ${number(side.actual_length, 2)}, ideal ${number(side.floor_length, 2)} (floor) to ${number(side.ceiling_length, 2)} (ceiling), NAS-L ${number(side.nas_l)}. Grey: where each match was expected.`;
  return make("figure", { class: "drawn" }, c.svg, make("figcaption", {}, make("span", { class: "counts" }, ...verdicts.map((verdict) => make("span", {}, icon(verdict), ` ${verdict}`))), caption));
}

function penalties(pair, name, width) {
  const side = pair[name];
  const top = Math.max(...side.penalty);
  const caption = make("figcaption", {}, `The ${name} text: ${number(side.total_penalty)} of at most ${number(side.max_penalty)}, NAS-D ${number(side.nas_d)}.${top > 1e-9 ? "" : " Nothing is out of place."}`);
  if (top <= 1e-9) return make("figure", {}, caption);
  const c = chart(`Penalties of the ${name} ${pair.noun}s`, side.text.length, top, { width, height: 190, xlabel: `${name} ${pair.noun}`, ylabel: "penalty", cells: "x" });
  c.svg.append(draw("path", { class: "cost", d: side.penalty.map((value, i) => {
    const [x0, x1] = [c.x(i + 0.12), c.x(i + 0.88)].map((v) => v.toFixed(1));
    return value > 0 ? `M${x0} ${c.bottom}V${c.y(value).toFixed(1)}H${x1}V${c.bottom}z` : "";
  }).join("") }));
  return make("figure", { class: "drawn" }, c.svg, caption);
}
