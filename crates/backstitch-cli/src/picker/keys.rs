//! Keys, apart from any terminal library.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A letter.
    Char(char),
    /// A letter with Ctrl.
    Ctrl(char),
    /// Return.
    Enter,
    /// Escape.
    Esc,
    /// Tab.
    Tab,
    /// Deletes to the left.
    Backspace,
    /// One up.
    Up,
    /// One down.
    Down,
    /// To the left.
    Left,
    /// To the right.
    Right,
    /// A screen up.
    PageUp,
    /// A screen down.
    PageDown,
    /// To the beginning.
    Home,
    /// To the end.
    End,
}

impl Key {
    /// Of an event; `None` for what has no meaning here.
    pub fn of(e: KeyEvent) -> Option<Key> {
        if e.kind == KeyEventKind::Release {
            return None;
        }
        Some(match e.code {
            KeyCode::Char(c) if e.modifiers.contains(KeyModifiers::CONTROL) => {
                Key::Ctrl(c.to_ascii_lowercase())
            }
            KeyCode::Char(_) if e.modifiers.contains(KeyModifiers::ALT) => return None,
            KeyCode::Char(c) => Key::Char(c),
            KeyCode::Enter => Key::Enter,
            KeyCode::Esc => Key::Esc,
            KeyCode::Tab => Key::Tab,
            KeyCode::Backspace => Key::Backspace,
            KeyCode::Up => Key::Up,
            KeyCode::Down => Key::Down,
            KeyCode::Left => Key::Left,
            KeyCode::Right => Key::Right,
            KeyCode::PageUp => Key::PageUp,
            KeyCode::PageDown => Key::PageDown,
            KeyCode::Home => Key::Home,
            KeyCode::End => Key::End,
            _ => return None,
        })
    }
}
