// A list of any length. Only the rows near the visible part are in the document, and only some pages are in memory.

import { make } from '/page/view.js';

/** The rows of a chunk, which is loaded and laid out as a whole. */
const CHUNK = 50;
/** The chunks that are kept in memory. */
const KEPT = 24;
/** The pages that are loaded at a time. */
const LOADS = 3;
/** The milliseconds after which a page that could not be loaded is loaded again. */
const AGAIN = 3000;
/** The pixels above and below the visible part that are drawn too. */
const MARGIN = 600;

export class ChunkList {
  /**
   * `load(offset, limit)` resolves to `{items, total}`. `row(item, place)` returns an element, and `key(item)` the identity
   * of an item. `height` is the height of a row that has not been drawn. `loaded(answer)` is called with each answer, and
   * `failed(error)` if there is none.
   */
  constructor(scroller, { load, row, key, height = 40, empty = 'Nothing here.', loaded = () => {}, failed = () => {} }) {
    Object.assign(this, { scroller, load, row, key, height, loaded, failed });
    this.total = 0;
    this.heights = new Map();
    this.pages = new Map();
    this.shown = new Map();
    this.running = new Set();
    this.isClosed = false;
    this.above = make('div', 'space');
    this.inside = make('div', 'chunks');
    this.below = make('div', 'space');
    this.nothing = make('p', 'nothing', empty);
    this.nothing.hidden = true;
    scroller.replaceChildren(this.above, this.inside, this.below, this.nothing);
    this.draw = this.draw.bind(this);
    this.ask = () => {
      if (!this.frame) this.frame = requestAnimationFrame(this.draw);
    };
    scroller.addEventListener('scroll', this.ask, { passive: true });
    this.sizes = new ResizeObserver(this.ask);
    this.sizes.observe(scroller);
  }

  /** Ends all work of the list. */
  close() {
    this.isClosed = true;
    cancelAnimationFrame(this.frame);
    this.scroller.removeEventListener('scroll', this.ask);
    this.sizes.disconnect();
  }

  /** Loads the visible part again. Rows that are as before stay in place. */
  async refresh() {
    for (const page of this.pages.values()) page.isOld = true;
    const visible = [...this.shown.keys()];
    await Promise.all((visible.length ? visible : [0]).map((chunk) => this.fetch(chunk)));
  }

  /** Returns true if the end of the list is visible. */
  isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    return scrollTop + clientHeight >= scrollHeight - 2;
  }

  /** Shows the end of the list. Heights become known while it is shown, so it takes more than one step. */
  async showEnd() {
    for (let step = 0; step < 20 && !this.isClosed; step += 1) {
      this.scroller.scrollTop = this.scroller.scrollHeight;
      this.draw();
      await Promise.all(this.running);
      await new Promise(requestAnimationFrame);
      if (this.isAtEnd() && !this.running.size) return;
    }
  }

  chunks() {
    return Math.ceil(this.total / CHUNK);
  }

  heightOf(chunk) {
    return this.heights.get(chunk) ?? Math.min(CHUNK, this.total - chunk * CHUNK) * this.height;
  }

  fetch(chunk) {
    const page = this.pages.get(chunk) ?? {};
    if (page.isLoading) {
      page.isOld = true;
      return page.isLoading;
    }
    this.pages.delete(chunk);
    this.pages.set(chunk, page);
    page.isOld = false;
    const loading = this.loadChunk(chunk).then(
      (answer) => {
        if (this.isClosed) return;
        page.items = answer.items;
        this.total = answer.total;
        this.nothing.hidden = this.total > 0;
        this.loaded(answer);
        this.forget();
        this.ask();
      },
      (error) => {
        page.again = performance.now() + AGAIN;
        if (!this.isClosed) this.failed(error);
      },
    );
    page.isLoading = loading.finally(() => {
      page.isLoading = null;
      this.running.delete(page.done);
    });
    page.done = page.isLoading;
    this.running.add(page.done);
    return page.isLoading;
  }

  /** Loads a chunk. A page of the server can have fewer entries than its limit. */
  async loadChunk(chunk) {
    const first = chunk * CHUNK;
    const answer = await this.load(first, CHUNK);
    let missing = Math.min(CHUNK, answer.total - first) - answer.items.length;
    while (missing > 0 && answer.items.length) {
      const { items } = await this.load(first + answer.items.length, missing);
      if (!items.length) break;
      answer.items.push(...items);
      missing -= items.length;
    }
    return answer;
  }

  /** Forgets the pages that were not used for the longest time. */
  forget() {
    for (const [chunk, page] of this.pages) {
      if (this.pages.size <= KEPT) return;
      if (!this.shown.has(chunk) && !page.isLoading) this.pages.delete(chunk);
    }
  }

  /** Draws the rows near the visible part. */
  draw() {
    this.frame = 0;
    if (this.isClosed) return;
    const top = this.scroller.scrollTop - MARGIN;
    const bottom = this.scroller.scrollTop + this.scroller.clientHeight + MARGIN;
    const all = this.chunks();
    let [first, last, before, at] = [all, 0, 0, 0];
    for (let chunk = 0; chunk < all; chunk += 1) {
      const end = at + this.heightOf(chunk);
      if (end > top && at < bottom) {
        if (chunk < first) [first, before] = [chunk, at];
        last = chunk + 1;
      }
      at = end;
    }
    // The end stays visible, although the heights above it become known.
    const wasAtEnd = this.scroller.scrollTop > 0 && this.isAtEnd();
    const anchor = this.anchor();
    const focus = this.focus();
    for (const [chunk, element] of this.shown) {
      if (chunk < first || chunk >= last) {
        element.remove();
        this.shown.delete(chunk);
      }
    }
    let next = this.inside.firstElementChild;
    for (let chunk = first; chunk < last; chunk += 1) {
      let element = this.shown.get(chunk);
      if (!element) {
        element = make('ol', 'chunk');
        element.start = chunk * CHUNK + 1;
        this.shown.set(chunk, element);
      }
      if (element === next) next = next.nextElementSibling;
      else this.inside.insertBefore(element, next);
      this.fill(chunk, element);
    }
    let height = 0;
    for (let chunk = first; chunk < last; chunk += 1) {
      const element = this.shown.get(chunk);
      if (element.childElementCount) this.heights.set(chunk, element.offsetHeight);
      height += this.heightOf(chunk);
    }
    let after = 0;
    for (let chunk = last; chunk < all; chunk += 1) after += this.heightOf(chunk);
    this.above.style.height = `${before}px`;
    this.below.style.height = `${after}px`;
    if (wasAtEnd) {
      this.scroller.scrollTop = this.scroller.scrollHeight;
    } else if (anchor && anchor.row.isConnected) {
      const moved = anchor.row.getBoundingClientRect().top - anchor.top;
      if (Math.abs(moved) > 1) this.scroller.scrollTop += moved;
    }
    focus();
    this.request();
  }

  /** Loads what is drawn and missing or old. What was scrolled past meanwhile is left out. */
  request() {
    for (const chunk of this.shown.keys()) {
      if (this.running.size >= LOADS) return;
      const page = this.pages.get(chunk);
      if (page?.again > performance.now()) continue;
      if (!page?.isLoading && (!page?.items || page.isOld)) this.fetch(chunk);
    }
  }

  fill(chunk, element) {
    const page = this.pages.get(chunk);
    if (!page?.items) {
      element.style.minHeight = `${this.heightOf(chunk)}px`;
      element.setAttribute('aria-busy', 'true');
      return;
    }
    // The page was used last.
    this.pages.delete(chunk);
    this.pages.set(chunk, page);
    if (element.items === page.items) return;
    element.items = page.items;
    element.style.minHeight = '';
    element.removeAttribute('aria-busy');
    const old = new Map([...element.children].map((row) => [row.key, row]));
    let next = element.firstElementChild;
    page.items.forEach((item, index) => {
      const place = chunk * CHUNK + index;
      const [key, text] = [String(this.key(item, place)), JSON.stringify(item)];
      let row = old.get(key);
      old.delete(key);
      if (!row || row.shownText !== text) {
        const changed = this.row(item, place);
        Object.assign(changed, { key, shownText: text });
        if (row && row === next) next = next.nextElementSibling;
        if (row) row.replaceWith(changed);
        row = changed;
      }
      if (row === next) next = next.nextElementSibling;
      else element.insertBefore(row, next);
    });
    for (const row of old.values()) row.remove();
  }

  /** Returns the first visible row and its place on the screen. */
  anchor() {
    const top = this.scroller.getBoundingClientRect().top;
    for (const element of this.inside.children) {
      if (element.getBoundingClientRect().bottom <= top) continue;
      for (const row of element.children) {
        const box = row.getBoundingClientRect();
        if (box.bottom > top) return { row, top: box.top };
      }
    }
    return null;
  }

  /** Returns a function that focuses the same control again if its row was replaced. */
  focus() {
    const active = document.activeElement;
    const row = active?.closest?.('li');
    if (!row?.key || !this.inside.contains(row)) return () => {};
    const { key } = row;
    const name = active.dataset.action;
    return () => {
      if (active.isConnected) return;
      const again = [...this.inside.querySelectorAll('li')].find((other) => other.key === key);
      const control = again && (name ? again.querySelector(`[data-action="${CSS.escape(name)}"]`) : again);
      if (control) control.focus({ preventScroll: true });
      else this.scroller.focus({ preventScroll: true });
    };
  }
}
