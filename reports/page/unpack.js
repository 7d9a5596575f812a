"use strict";
// What the page holds as gzip in base64, a third of its text: the data, and the library that draws its plots.
function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}
