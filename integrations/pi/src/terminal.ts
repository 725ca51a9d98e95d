// Double Escape in the terminal opens the menu by the same command that a person would type.
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { DoublePress } from "./gesture.ts";
import type { Settings } from "./settings.ts";

type Focus = { getFocusedComponent?: () => unknown; focusedComponent?: unknown };

/** The terminal's root, which alone knows where the keys go. A widget is handed it; this one is never seen. */
function root(ctx: ExtensionContext): Focus | undefined {
  let found: Focus | undefined;
  ctx.ui.setWidget("backstitch", (tui) => {
    found = tui as unknown as Focus;
    return { render: () => [], invalidate: () => {} };
  });
  ctx.ui.setWidget("backstitch", undefined);
  return found;
}

/** The chat's editor has the keys: neither a menu nor a dialog. */
function editorFocused(tui: Focus | undefined): boolean {
  const focused = (tui?.getFocusedComponent?.() ?? tui?.focusedComponent) as { getText?: unknown; setText?: unknown } | null | undefined;
  return typeof focused?.getText === "function" && typeof focused.setText === "function";
}

/** Listens until the returned function is called. The second press is ours: pi's own action on the key never sees it. */
export function bindGesture(pi: ExtensionAPI, ctx: ExtensionContext, settings: Settings): (() => void) | undefined {
  if (settings.gesture === "none" || ctx.mode === "rpc") return undefined;
  const tui = root(ctx);
  const press = new DoublePress(settings.gestureWindow);
  return ctx.ui.onTerminalInput((data) => {
    const eligible = ctx.isIdle() && ctx.ui.getEditorText() === "" && editorFocused(tui);
    if (!press.input(data, eligible, performance.now())) return undefined;
    if (typeof (pi as { getSettings?: unknown }).getSettings === "function") {
      pi.sendUserMessage("/rewind", { expandPromptTemplates: true });
      return { consume: true };
    }
    // Versions that cannot dispatch a command: type it.
    ctx.ui.setEditorText("/rewind");
    return { data: "\r" };
  });
}
