// How far the model is with its proposals, in a pill of the bar.
import { percent, setText, show, t } from "./shared.js";

export function showModel(node, model) {
  show(node, Boolean(model));
  if (!model) return;
  const { now, done, recordings } = model;
  const values = { done, of: recordings, share: now?.of ? percent(now.done / now.of) : "" };
  setText(node, now ? t("model.working", values) : t("model.ready", values));
}
