"use strict";
// The list of all pairs: filters, order, and the same rows as CSV.

const TABLE_PAGE = 50;

// The flags of a pair as short marks; their meanings stand in the legend, and at the marks themselves.
const marks = (index, flags) => flags.flatMap((flag, k) => [k ? ", " : "", make("abbr", { title: index.flags[flag].meaning }, index.flags[flag].mark)]);

// A kept value: a link if it is an address of the web, else a text.
const keptCell = (text) => (address(text) ? outward(text, text) : make("bdi", {}, text));

// A phone has room for the first two scores, which are the ones to report.
const onPhone = (k) => (k < 2 ? null : "not-phone");

function pairList(index, scored, failed) {
  const several = index.systems.length > 1;
  const every = [...scored, ...failed];
  const first = index.headline.findIndex(({ name }) => name === index.ranking[0]);
  const columns = [
    { label: "pair", key: (row) => row.id },
    ...(several ? [{ label: "system", kind: "text not-phone", key: (row) => index.systems[row.system].name }] : []),
    // The other scores stand on the page of a pair, and in the rows as CSV.
    ...index.headline.map((score, k) => ({ label: score.label, title: score.full ? `${score.full}: ${score.meaning}` : score.meaning, kind: onPhone(k), score, key: (row) => (row.scores ? row.scores[score.name] : Infinity) })),
    { label: "flags", kind: "text", key: (row) => row.flags.map((flag) => index.flags[flag].mark).join() },
    ...index.columns.map((label, k) => ({ label, kind: "text kept not-phone", key: (row) => row.kept[k] || Infinity })),
  ];
  const body = make("tbody");
  const filters = pairFilters(index, every, () => sorter.again());
  let rows = scored;
  const line = (row) => {
    const name = make("bdi", {}, row.id);
    const title = make("th", { scope: "row" }, row.page === null ? name : make("a", { href: `#pair-${row.page}` }, name), several ? make("span", { class: "only-phone soft" }, nameOf(index, row.system)) : null);
    return make("tr", { class: row.scores ? null : "failed" }, title, several ? make("td", { class: "text not-phone" }, nameOf(index, row.system)) : null,
      ...(row.scores ? [...index.headline.map(({ name: score }, k) => make("td", { class: onPhone(k) }, number(row.scores[score]))), make("td", { class: "text flags" }, ...marks(index, row.flags))]
        : [make("td", { class: "text reason", colspan: index.headline.length + 1 }, `not scored: ${row.reason}`)]),
      ...index.columns.map((_, k) => make("td", { class: "text kept not-phone", title: row.kept[k] ?? null }, keptCell(row.kept[k] ?? ""))));
  };
  const page = pager(rows.length, TABLE_PAGE, (from, to) => body.replaceChildren(...rows.slice(from, to).map(line)));
  const sorter = sortable(columns.map(({ label, title, kind }) => [label, title, kind]), 1 + (several ? 1 : 0) + first, (by, down) => {
    rows = sorted(every.filter(filters.holds), columns[by].key, down);
    const total = scored.length + index.failed_count + index.left_out;
    count.textContent = total === 1 && rows.length ? "1 pair." : rows.length === total ? `All ${total} pairs.` : `${rows.length} of ${total} pairs.`;
    nothing.hidden = rows.length > 0;
    table.hidden = rows.length === 0;
    page.resize(rows.length);
  });
  const count = make("span", { role: "status", class: "count" });
  const nothing = make("p", { id: "nothing" }, "No pair matches. ", make("button", { type: "button", onclick: () => filters.clear() }, "Clear the filters"));
  const table = make("div", {}, scroller("Pairs", make("table", { id: "pairs" }, make("thead", {}, make("tr", {}, ...sorter.heads)), body)));
  const limits = [index.left_out ? `${index.left_out} pairs between the worst and the best are not listed.` : "", index.failed_count > failed.length ? `${failed.length} of ${index.failed_count} pairs that were not scored are listed.` : ""];
  const download = make("button", { type: "button", id: "csv", onclick: () => save(`${index.title}.csv`, csv(index, rows)) }, "Download these rows as CSV");
  const present = Object.keys(index.flags).filter((flag) => scored.some((row) => row.flags.includes(flag)));
  const legend = make("dl", { class: "soft legend" }, ...present.flatMap((flag) => [make("dt", {}, index.flags[flag].mark), make("dd", {}, index.flags[flag].meaning)]));
  const paper = make("p", { class: "paper soft" });
  const paged = scored.filter((row) => row.page !== null).length;
  const unlinked = make("p", { class: "soft" }, paged ? "A pair without a link has no page; --pages adds pages." : "No pair has a page; to add pages, give --references and --predictions, or --pairs.");
  unlinked.hidden = paged === scored.length;
  sorter.again();
  const box = make("div", {}, filters.box, make("p", { class: "controls" }, count, " ", ...limits.filter((text) => text).map((text) => `${text} `), download), page.box, paper, nothing, table, unlinked, wider(), legend);
  return { box, ...printing(page, paper, () => rows.length, () => count.textContent.replace(/\.$/, "")) };
}

function pairFilters(index, every, changed) {
  const option = (value, text) => make("option", { value }, text);
  const found = (holds) => every.filter(holds).length;
  const bit = Object.fromEntries(Object.keys(index.verdicts).map((verdict, k) => [verdict, 2 ** k]));
  const kinds = {
    all: ["all pairs", () => true],
    failed: ["not scored", (row) => row.scores === null],
    page: ["with a page", (row) => row.page !== null],
    ...Object.fromEntries(Object.entries(index.flags).map(([flag, { mark }]) => [`flag ${flag}`, [mark, (row) => row.flags.includes(flag)]])),
    ...Object.fromEntries(Object.keys(index.verdicts).map((verdict) => [`verdict ${verdict}`, [verdict, (row) => Math.floor(row.present / bit[verdict]) % 2 === 1]])),
  };
  const options = (start) => Object.entries(kinds).filter(([name, [, holds]]) => name.startsWith(start) && found(holds)).map(([name, [text, holds]]) => option(name, `${text} (${found(holds)})`));
  const group = (label, start) => (options(start).length ? make("optgroup", { label }, ...options(start)) : null);
  const unit = index.settings.every(([signature]) => signature.includes("|chunk:1|") && !signature.includes("|seg:none|")) ? "sentence" : "chunk";
  const name = make("input", { type: "search", id: "find", oninput: changed });
  const system = make("select", { id: "system", onchange: changed }, option("", "all systems"), ...index.systems.map((each, k) => option(String(k), each.name)));
  const kind = make("select", { id: "kind", onchange: changed }, option("all", "all pairs"), ...options("failed"), ...options("page"), group("flags", "flag "), group(`a ${unit} is (pairs with a page)`, "verdict "));
  const score = make("select", { id: "ranged", onchange: changed }, ...index.ordered.map((each) => option(each.name, each.label)));
  score.value = index.ranking[0];
  const end = (id, label) => make("input", { type: "number", id, step: "any", "aria-label": label, oninput: changed });
  const [least, most] = [end("least", "smallest score"), end("most", "largest score")];
  const reset = make("button", { type: "button", id: "clear", onclick: () => clear() }, "Clear");
  const within = (row) => {
    if (least.value === "" && most.value === "") return true;
    if (!row.scores) return false;
    const value = row.scores[score.value];
    return (least.value === "" || value >= Number(least.value)) && (most.value === "" || value <= Number(most.value));
  };
  const named = (row, text) => [row.id, ...row.kept].some((part) => part.toLowerCase().includes(text));
  const holds = (row) => named(row, name.value.toLowerCase()) && (system.value === "" || row.system === Number(system.value)) && kinds[kind.value][1](row) && within(row);
  function clear() {
    for (const field of [name, least, most, system]) field.value = "";
    kind.value = "all";
    changed();
    name.focus();
  }
  const box = make("div", { class: "filters controls", role: "search", "aria-label": "pairs" }, make("label", {}, "Find pair ", name), index.systems.length > 1 ? make("label", {}, "System ", system) : null, make("label", {}, "Show ", kind),
    make("span", { class: "range" }, make("label", {}, "Where ", score), " from ", least, " to ", most), reset);
  return { box, holds, clear };
}

function csv(index, rows) {
  // A text that begins like a formula is not one; a number and the name of a video that begins with "-" stay as they are.
  const field = (value) => {
    const text = typeof value === "string" && /^[=@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const head = ["pair", "system", ...index.scores.map(({ name }) => name), "flags", "error", ...index.columns];
  const line = (row) => [row.id, index.systems[row.system].name, ...index.scores.map(({ name }) => row.scores?.[name]), row.flags.join(" "), row.reason, ...row.kept];
  return `${[head, ...rows.map(line)].map((fields) => fields.map(field).join(",")).join("\r\n")}\r\n`;
}

function save(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  make("a", { href: address, download: name.replace(/[\\/:*?"<>|]+/g, " ") }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
