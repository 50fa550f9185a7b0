// Predicts labels with the arrays of web_page.py; the features are those of xmtc's tf-idf view.
const MAX_RANKED = 20; // labels of each tree that count, if there are several trees
const MAX_MARKS = 30; // combining characters of one letter that are read
const CODES_END = 0x110000;

async function readModel() {
  const packed = atob(document.getElementById("model").textContent);
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const content = await new Response(stream).arrayBuffer();
  const headerEnd = 4 + new DataView(content).getUint32(0, true);
  const model = JSON.parse(new TextDecoder().decode(new Uint8Array(content, 4, headerEnd - 4)));
  const types = { uint8: Uint8Array, int8: Int8Array, int32: Int32Array, float32: Float32Array };
  let at = headerEnd;
  for (const [name, type, size] of model.sections) {
    model[name] = new types[type](content.slice(at, at + size));
    at += size;
  }
  readTerms(model);
  readWeights(model);
  model.isMark = makeMask(model.marks, 1);
  for (const part of model.parts) part.isToken = makeMask(part.ranges, part.unit === "words" ? 1 : 0);
  return model;
}

function makeMask(ranges, value) {
  const mask = new Uint8Array(CODES_END).fill(1 - value);
  for (const [begin, end] of ranges) mask.fill(value, begin, end);
  return mask;
}

function readTerms(model) {
  const terms = new TextDecoder("utf-8", { ignoreBOM: true }).decode(model.terms).split("\n");
  let column = 0;
  for (const part of model.parts) {
    part.columns = new Map();
    for (let i = 0; i < part.n_terms; i++) part.columns.set(terms[column], column++);
  }
}

// Variable-length integers: for each feature the number of its slots, and the differences between the slots.
function readWeights(model) {
  const nFeatures = model.idf.length, packed = model.slots;
  model.starts = new Int32Array(nFeatures + 1);
  const slots = new Int32Array(model.weights.length);
  let at = 0, n = 0;
  const next = () => {
    let value = 0, factor = 1;
    for (;;) {
      const byte = packed[at++];
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
      factor *= 128;
    }
  };
  for (let feature = 0; feature < nFeatures; feature++) {
    let slot = 0;
    for (let left = next(); left > 0; left--) slots[n++] = slot += next();
    model.starts[feature + 1] = n;
  }
  model.slots = slots;
}

function normalise(model, text, lowercase) {
  if (/[^\x00-\x7f]/.test(text)) {
    let nMarks = 0, kept = "";
    for (const character of text) {
      nMarks = model.isMark[character.codePointAt(0)] ? nMarks + 1 : 0;
      if (nMarks <= MAX_MARKS) kept += character;
    }
    text = kept.normalize("NFC");
  }
  if (lowercase) text = text.toLowerCase();
  return text.replace(/\p{Surrogate}/gu, "?");
}

function splitWords(model, part, text) {
  const words = [];
  let word = "", n = 0;
  const end = () => {
    if (n >= part.min_chars && !part.stop_words.includes(word)) words.push(word);
    word = "";
    n = 0;
  };
  for (const character of normalise(model, text, part.lowercase)) {
    if (part.isToken[character.codePointAt(0)]) {
      word += character;
      n++;
    } else end();
  }
  end();
  return words;
}

// Character n-grams of a word between spaces; of 1 to 3 characters in scripts such as Chinese.
function cutGrams(model, word, [shortest, longest]) {
  const padded = [" ", ...word, " "], grams = [];
  for (let i = 0; i < padded.length; i++) {
    const code = padded[i === 0 ? 1 : i].codePointAt(0);
    const isDense = model.dense.some(([begin, end]) => begin <= code && code < end);
    let [low, high] = isDense ? [1, 3] : [shortest, longest];
    if (padded[i] === " " && low < 2) low = 2;
    for (let n = low; n <= Math.min(high, padded.length - i); n++) grams.push(padded.slice(i, i + n).join(""));
    if (i === 0 && padded.length < low) grams.push(padded.join(""));
  }
  return grams;
}

function listTerms(model, part, text) {
  const words = splitWords(model, part, text);
  if (part.grams) return words.flatMap((word) => cutGrams(model, word, part.grams));
  const terms = [];
  for (let i = 0; i < words.length; i++) {
    for (let n = 1; n <= part.ngrams && i + n <= words.length; n++) terms.push(words.slice(i, i + n).join(" "));
    for (let gap = 2; gap <= part.skip + 1 && i + gap < words.length; gap++) terms.push(`${words[i]} ${words[i + gap]}`);
  }
  return terms;
}

function computeFeatures(model, text) {
  const features = [];
  for (const part of model.parts) {
    const counts = new Map();
    for (const term of listTerms(model, part, text)) {
      const column = part.columns.get(term);
      if (column !== undefined) counts.set(column, (counts.get(column) ?? 0) + 1);
    }
    const values = [...counts].map(([column, tf]) => [
      column, (part.sublinear_tf ? Math.log(tf) + 1 : tf) * model.idf[column],
    ]);
    const length = Math.sqrt(values.reduce((sum, [, value]) => sum + value * value, 0) * model.parts.length);
    features.push(...values.map(([column, value]) => [column, value / length]).sort((a, b) => a[0] - b[0]));
  }
  return features;
}

function computeLogs(model, features) {
  const logs = new Float64Array(model.bias.length);
  for (const [column, value] of features) {
    for (let i = model.starts[column]; i < model.starts[column + 1]; i++) {
      logs[model.slots[i]] += value * model.weights[i];
    }
  }
  for (let slot = 0; slot < logs.length; slot++) {
    const margin = logs[slot] * model.scales[slot] + model.bias[slot];
    const hinge = Math.max(0, 1 - margin);
    const above = model.parents[slot] < 0 ? 0 : logs[model.parents[slot]]; // parents come first
    if (model.link === "logistic") logs[slot] = above - (Math.max(0, -margin) + Math.log1p(Math.exp(-Math.abs(margin))));
    else logs[slot] = above - hinge * hinge * (model.link === "squared_hinge" ? 1 : hinge);
  }
  return logs;
}

function calibrate(model, score) {
  const { knots, probabilities } = model;
  if (!knots.length) return score;
  let i = knots.findLastIndex((knot) => knot <= score), curve = probabilities[Math.max(i, 0)];
  if (i >= 0 && i + 1 < knots.length) {
    curve += ((probabilities[i + 1] - curve) * (score - knots[i])) / (knots[i + 1] - knots[i]);
  }
  return 0.999 * curve + 0.001 * Math.min(Math.max(score, 0), 1);
}

function predict(model, text, k) {
  const features = computeFeatures(model, text);
  if (!features.length) return [];
  const logs = computeLogs(model, features), scores = new Map(), nTrees = model.trees.length - 1;
  for (let tree = 0; tree < nTrees; tree++) {
    let ranked = [];
    for (let slot = model.trees[tree]; slot < model.trees[tree + 1]; slot++) {
      if (model.slot_labels[slot] >= 0) ranked.push([model.slot_labels[slot], logs[slot]]);
    }
    ranked = ranked.sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, nTrees > 1 ? MAX_RANKED : undefined);
    for (const [label, log] of ranked) scores.set(label, (scores.get(label) ?? 0) + (Math.exp(log) + 1e-30) / nTrees);
  }
  const best = [...scores].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, k);
  return best.map(([label, score]) => ({
    label: model.labels[label], name: model.names[label], score: calibrate(model, score),
  }));
}

const model = await readModel();
const [text, k, status, list] = ["text", "k", "status", "labels"].map((id) => document.getElementById(id));

function show() {
  const labels = predict(model, text.value, Math.min(20, Math.max(1, Number(k.value) || 1)));
  list.replaceChildren(...labels.map(({ label, name, score }) => {
    const item = document.createElement("li"), number = document.createElement("b");
    number.textContent = score.toFixed(3);
    item.append(number, ` ${name ? `${name} (${label})` : label}`);
    return item;
  }));
  const empty = text.value.trim() ? "No known word in the text." : "Enter a text.";
  status.textContent = labels.length ? `${labels.length} of ${model.labels.length} labels` : empty;
}

for (const field of [text, k]) field.addEventListener("input", show);
show();
document.body.className = "ready";
globalThis.xmtc = { predict: (text, k = 5) => predict(model, text, k), features: (text) => computeFeatures(model, text) };
