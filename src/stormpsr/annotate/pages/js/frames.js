// Images by the number of their frame: asked of the server, decoded, kept, and the next ones fetched beforehand.
const MOST_KEPT = 90;
const AHEAD = 6;
const LONGEST_STEP = 60; // places; more is a jump

export class Frames {
  /** address(number) is the URL of a frame; numbers are those of frames that have an image, by their place. */
  constructor(address, count) {
    this.address = address;
    this.count = count;
    this.kept = new Map(); // place -> ImageBitmap, the latest used last
    this.loading = new Map(); // place -> promise
  }

  ready(place) {
    return this.kept.get(place);
  }

  /** The image of a place, as soon as it is there. */
  async get(place) {
    const found = this.kept.get(place);
    if (found) {
      this.kept.delete(place);
      this.kept.set(place, found);
      return found;
    }
    if (!this.loading.has(place)) {
      const done = this.load(place).finally(() => this.loading.delete(place));
      this.loading.set(place, done);
    }
    return this.loading.get(place);
  }

  async load(place) {
    const response = await fetch(this.address(place));
    if (!response.ok) throw new Error(`${response.status}`);
    const image = await createImageBitmap(await response.blob());
    this.kept.set(place, image);
    while (this.kept.size > MOST_KEPT) {
      const [oldest, old] = this.kept.entries().next().value;
      this.kept.delete(oldest);
      old.close();
    }
    return image;
  }

  isJump(step) {
    return step === 0 || Math.abs(step) > LONGEST_STEP;
  }

  /** Fetch what comes next if the last step is repeated, unless much is on its way already. */
  prefetch(place, step) {
    for (let i = 1; i <= AHEAD && step; i++) {
      const next = place + step * i;
      if (next < 0 || next >= this.count || this.loading.size >= 4) return;
      if (!this.kept.has(next)) this.get(next).catch(() => {});
    }
  }
}
