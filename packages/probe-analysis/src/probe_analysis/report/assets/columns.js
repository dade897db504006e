"use strict";
/* Read the data of the page. columns.py says how it is written. */

const Columns = (() => {
  const TYPES = {
    u1: Uint8Array, i1: Int8Array, u2: Uint16Array, i2: Int16Array, u4: Uint32Array, i4: Int32Array,
    f4: Float32Array, f8: Float64Array,
  };

  /** Return the document in an element: base64 of gzip of JSON and columns. */
  async function load(element) {
    const packed = decode(element.textContent);
    element.remove(); // the text is as large as all the data: give it back
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return unpack(await new Response(stream).arrayBuffer());
  }

  function decode(text) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
    return bytes;
  }

  function unpack(buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    const document = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    return revive(document, buffer, 4 + length);
  }

  /** Put typed arrays, which are views of the buffer, in the place of each {"column": [type, begin, length]}. */
  function revive(node, buffer, base) {
    if (Array.isArray(node)) return typeof node[0] === "string" ? node : node.map((each) => revive(each, buffer, base));
    if (node === null || typeof node !== "object") return node;
    if (Array.isArray(node.column)) {
      const [type, begin, length] = node.column;
      return new TYPES[type](buffer, base + begin, length);
    }
    for (const key of Object.keys(node)) node[key] = revive(node[key], buffer, base);
    return node;
  }

  return { load };
})();
