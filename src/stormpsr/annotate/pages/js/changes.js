// Changes on their way to the server: one after the other, each sent again until it is answered.
import { post, ServerError } from "./shared.js";

const AGAIN_MS = 700;
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

export class Changes {
  /** onAnswer(document), onStale(), onRefused(error), onWaiting(number of changes, whether the server is there) */
  constructor(url, handlers) {
    this.url = url;
    this.handlers = handlers;
    this.queue = [];
    this.revision = 0;
    this.running = false;
    this.count = 0; // of those that were answered
  }

  send(change) {
    this.queue.push({ id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`, ...change });
    this.handlers.onWaiting(this.queue.length, true);
    if (!this.running) this.run();
  }

  async run() {
    this.running = true;
    while (this.queue.length) {
      const change = this.queue[0];
      try {
        const answer = await post(this.url, { revision: this.revision, ...change });
        this.revision = answer.revision;
        this.queue.shift();
        this.handlers.onAnswer(answer, change);
      } catch (error) {
        if (!(error instanceof ServerError)) throw error;
        if (error.status === 0 || error.status === 429 || error.status >= 500) {
          this.handlers.onWaiting(this.queue.length, error.status !== 0);
          await wait(AGAIN_MS); // nothing is lost: it is sent again until the server is back
          continue;
        }
        this.queue.shift();
        if (error.status === 409) {
          this.queue.length = 0; // they were made by looking at something that is no longer so
          await this.handlers.onStale(error);
        } else this.handlers.onRefused(error);
      }
      this.handlers.onWaiting(this.queue.length, true);
    }
    this.running = false;
  }
}
