//! Display of snapshots on a terminal.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use sluice_daemon::config::text::escaped;

use super::poll::Poller;
use super::sheet::{self, Sheet};
use super::snapshot::Snapshot;
use crate::columns::Align;
use crate::exit::CommandError;

/// Maximum delay before a key or a snapshot is processed.
const TICK: Duration = Duration::from_millis(100);

/// Minimum terminal width at which two tables are shown side by side.
const WIDE: u16 = 160;

/// State of the display.
#[derive(Debug, Default)]
pub struct View {
    snapshot: Option<Snapshot>,
    error: Option<String>,
    first: usize,
}

/// Action that a key requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    End,
    Up,
    Down,
}

/// Show snapshots until the user quits.
///
/// # Errors
/// The first poll of the daemon fails, or the terminal can't be used.
pub fn run(socket: &Path, interval: Duration) -> Result<(), CommandError> {
    let mut poller = Poller::new(socket);
    poller.poll()?;
    let news = watch(poller, interval);
    let mut terminal = Restored(ratatui::try_init()?);
    let mut view = View::default();
    loop {
        terminal.0.draw(|frame| view.draw(frame))?;
        if next_wish()?.is_some_and(|wish| view.follow(wish)) {
            return Ok(());
        }
        if !view.take(&news) {
            return Ok(());
        }
    }
}

/// A terminal. Its state is restored when this value is dropped.
struct Restored(ratatui::DefaultTerminal);

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

type News = Result<Snapshot, String>;

/// Poll the daemon in a separate thread, so that keys are processed even if the daemon does not answer.
fn watch(mut poller: Poller, interval: Duration) -> Receiver<News> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        let mut before = None;
        loop {
            let news = match poller.poll() {
                Ok(now) => {
                    let snapshot = before.as_ref().map(|before| Snapshot::between(before, &now));
                    before = Some(now);
                    snapshot.map(Ok)
                }
                Err(error) => Some(Err(error.to_string())),
            };
            if news.is_some_and(|news| sender.send(news).is_err()) {
                return;
            }
            std::thread::sleep(interval);
        }
    });
    receiver
}

fn next_wish() -> io::Result<Option<Wish>> {
    if !event::poll(TICK)? {
        return Ok(None);
    }
    match event::read()? {
        Event::Key(key) => Ok(wish(&key)),
        _ => Ok(None),
    }
}

fn wish(key: &KeyEvent) -> Option<Wish> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::End),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::End),
        KeyCode::Up => Some(Wish::Up),
        KeyCode::Down => Some(Wish::Down),
        _ => None,
    }
}

impl View {
    /// Execute an action. Returns whether to quit.
    fn follow(&mut self, wish: Wish) -> bool {
        let workers = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.workers.len());
        match wish {
            Wish::End => return true,
            Wish::Up => self.first = self.first.saturating_sub(1),
            Wish::Down => self.first = (self.first + 1).min(workers.saturating_sub(1)),
        }
        false
    }

    /// Receive pending snapshots. Returns whether further snapshots can arrive.
    fn take(&mut self, news: &Receiver<News>) -> bool {
        match news.try_recv() {
            Ok(Ok(snapshot)) => (self.snapshot, self.error) = (Some(snapshot), None),
            Ok(Err(error)) => self.error = Some(error),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return false,
        }
        true
    }

    /// Draw as much of the snapshot as the terminal has room for.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let head = self.head();
        let rows = [Constraint::Length(head.lines.len() as u16), Constraint::Fill(1)];
        let [above, body] = Layout::vertical(rows).areas(frame.area());
        frame.render_widget(Paragraph::new(head), above);
        if let Some(snapshot) = &self.snapshot {
            tables(snapshot, self.first, frame, body);
        }
    }

    fn head(&self) -> Text<'_> {
        let title = self.snapshot.as_ref().map_or("…".into(), sheet::title);
        let mut lines = vec![Line::styled(escaped(&title).into_owned(), Modifier::BOLD)];
        let warnings = self.snapshot.iter().flat_map(|snapshot| &snapshot.warnings);
        // The first line of a multi-line error states the problem.
        let error = self.error.iter().filter_map(|error| error.lines().next());
        lines.extend(
            error
                .chain(warnings.map(String::as_str))
                .map(|text| Line::styled(escaped(text), URGENT)),
        );
        Text::from(lines)
    }
}

const URGENT: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const TITLE: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draw the tables, two side by side if there is room. The row of the sum stays in view; the `first` workers after it
/// are scrolled out of view.
fn tables(snapshot: &Snapshot, first: usize, frame: &mut Frame<'_>, area: Rect) {
    let assist = sheet::assist(snapshot);
    let mut area = area;
    if !assist.rows.is_empty() {
        // Two rows are added, for the titles and a blank row.
        let rows = [Constraint::Max(assist.rows.len() as u16 + 2), Constraint::Fill(1)];
        let [above, below] = Layout::vertical(rows).areas(area);
        table(&assist, frame, above);
        area = below;
    }
    let (mut load, mut stages) = (sheet::load(snapshot), sheet::stages(snapshot));
    let scrolled = first.min(snapshot.workers.len());
    load.rows.drain(1..=scrolled);
    stages.rows.drain(1..=scrolled);
    let traffic = sheet::traffic(snapshot);
    let drops = sheet::drops(snapshot, usize::from(area.height));
    let [workers, traffic_rows] = [load.rows.len(), traffic.rows.len()].map(|rows| rows as u16 + 1);
    if area.width >= WIDE {
        let rows = [Constraint::Max(workers + 1), Constraint::Fill(1)];
        let halves = [Constraint::Fill(1), Constraint::Fill(1)];
        let [above, below] = Layout::vertical(rows).areas(area);
        let [left, right] = Layout::horizontal(halves).spacing(2).areas(above);
        table(&load, frame, left);
        table(&stages, frame, right);
        let [left, right] = Layout::horizontal(halves).spacing(2).areas(below);
        table(&traffic, frame, left);
        table(&drops, frame, right);
        return;
    }
    // The table of workers leaves a third of the rows to the other tables. A blank row follows each table.
    let max = (area.height / 3).max(3);
    let rows = [
        Constraint::Length(workers.min(max) + 1),
        Constraint::Length(workers.min(max) + 1),
        Constraint::Length(traffic_rows.min(max) + 1),
        Constraint::Fill(1),
    ];
    let [one, two, three, four] = Layout::vertical(rows).areas(area);
    table(&load, frame, one);
    table(&stages, frame, two);
    table(&traffic, frame, three);
    table(&drops, frame, four);
}

fn table<const N: usize>(sheet: &Sheet<N>, frame: &mut Frame<'_>, area: Rect) {
    // The last row of each area is the gap to the next area.
    let area = Rect {
        height: area.height.saturating_sub(1),
        ..area
    };
    let rows = sheet.rows.iter().map(|row| {
        let style = if row.urgent { URGENT } else { Style::new() };
        Row::new(cells(sheet, &row.cells)).style(style)
    });
    let titles = sheet.titles.each_ref().map(|(title, _)| title.clone());
    let header = Row::new(cells(sheet, &titles)).style(TITLE);
    frame.render_widget(Table::new(rows, widths(sheet)).header(header).column_spacing(1), area);
}

fn cells<const N: usize>(sheet: &Sheet<N>, texts: &[String; N]) -> Vec<Cell<'static>> {
    let aligned = texts.iter().zip(&sheet.titles).map(|(text, (_, align))| {
        let alignment = match align {
            Align::Left => Alignment::Left,
            Align::Right => Alignment::Right,
        };
        Cell::from(Line::from(escaped(text).into_owned()).alignment(alignment))
    });
    aligned.collect()
}

/// Columns are as wide as their widest cell. The last column takes the remaining width.
fn widths<const N: usize>(sheet: &Sheet<N>) -> Vec<Constraint> {
    let width = |column: usize| {
        let cells = sheet.rows.iter().map(|row| escaped(&row.cells[column]).chars().count());
        cells.max().unwrap_or(0).max(sheet.titles[column].0.len()) as u16
    };
    let last = |column: usize| column + 1 == N && sheet.titles[column].1 == Align::Left;
    let columns = (0..N).map(|column| match last(column) {
        true => Constraint::Min(sheet.titles[column].0.len() as u16),
        false => Constraint::Length(width(column)),
    });
    columns.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::time::Instant;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::snapshot::Assist;
    use super::super::tests::poll;
    use super::*;

    fn view() -> View {
        let started_at = Instant::now();
        let (before, now) = (poll(started_at, 1), poll(started_at + Duration::from_secs(1), 2));
        View {
            snapshot: Some(Snapshot::between(&before, &now)),
            ..View::default()
        }
    }

    fn drawn(view: &View, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn screen_of_80_columns_has_the_tables_one_below_the_other() {
        let expected = "\
gateway: up 1m 40s, 1,234 sessions; the last 1.0 s
WORKER CORE BUSY PACKETS/S PREDICTED CYCLES WAITING HANDED/S TAKEN/S SHED/S
   all    - 11 %     1.00M     10.0M    220      10     100k    100k     50
     0    2 10 %     1.00M     10.0M    200       3     100k       0     50
     1    3  1 %      100k     10.0M    200       7        0    100k      0

WORKER RECEIVE PARSE SESSION INSPECT FORWARD SEND HANDED TAKEN PARTS
   all      33    33     110       0       0   22     11    11 -
     0      30    30     100       0       0   20     10    10 receive+parse
     1      30    30     100       0       0   20     10    10 session+transmit

INTERFACE LINK RECEIVED/S BITS/S SENT/S BITS/S DROPPED/S
all       -         1.00M   800M 99,000  79.2M        50
inside    up        1.00M   800M      0      0        50
outside   down          0      0 99,000  79.2M         0

DROPPED/S DROPPED REASON
       70     140 unsolicited
       50     100 shed
        0       9 ttl-expired
";
        let lines = drawn(&view(), 80, 24);
        assert_eq!(expected.trim_end(), lines.join("\n").trim_end());
    }

    #[test]
    fn text_that_acts_on_a_terminal_is_escaped() {
        let mut view = view();
        let snapshot = view.snapshot.as_mut().unwrap();
        snapshot.warnings = vec!["w\u{1b}[2J\n\u{202e}\u{9b}".into()];
        snapshot.workers[0].parts = "p\u{202e}\u{9b}".into();
        let lines = drawn(&view, 120, 24);
        assert_eq!("w\\u001b[2J\\u000a\\u202e\\u009b", lines[1]);
        assert!(lines.iter().any(|line| line.contains("p\\u202e\\u009b")));
        assert!(!lines.concat().chars().any(sluice_daemon::config::text::is_hidden));
    }

    #[test]
    fn screen_begins_with_the_workers_that_assist() {
        let mut view = view();
        let snapshot = view.snapshot.as_mut().unwrap();
        snapshot.workers[0].figures.assist = Assist {
            lent: 3,
            waiting: 40,
            packets: 120_000.0,
            slices_ended: 700.0,
            begun: 2,
            ended: 1,
        };
        let lines = drawn(&view, 80, 24);
        assert_eq!("WORKER LENT QUEUED ASSISTED/S SLICES/S BEGUN ENDED", lines[1]);
        assert_eq!("     0    3     40       120k      700     2     1", lines[2]);
        assert!(lines[4].starts_with("WORKER CORE BUSY"), "{lines:?}");
    }

    #[test]
    fn screen_of_200_columns_has_two_tables_side_by_side() {
        let lines = drawn(&view(), 200, 50);
        assert!(
            lines[1].starts_with("WORKER CORE") && lines[1].contains("WORKER RECEIVE"),
            "{}",
            lines[1]
        );
        assert!(lines[4].ends_with("session+transmit"), "{}", lines[4]);
        assert!(
            lines[6].starts_with("INTERFACE") && lines[6].ends_with("REASON"),
            "{}",
            lines[6]
        );
    }

    #[test]
    fn screen_of_any_size_is_drawn() {
        let troubled = View {
            error: Some("no daemon answers\nstart one".into()),
            ..view()
        };
        for (width, height) in [(20, 5), (1, 1), (3, 40), (300, 2), (160, 8)] {
            for view in [&view(), &troubled, &View::default()] {
                assert_eq!(usize::from(height), drawn(view, width, height).len());
            }
        }
    }

    #[test]
    fn workers_scrolled_away_leave_their_sum() {
        let mut view = view();
        for _ in 0..9 {
            assert!(!view.follow(Wish::Down));
        }
        let lines = drawn(&view, 80, 24);
        assert!(
            lines[2].starts_with("   all") && lines[3].starts_with("     1"),
            "{lines:#?}"
        );
        for _ in 0..9 {
            view.follow(Wish::Up);
        }
        assert!(drawn(&view, 80, 24)[3].starts_with("     0"));
    }

    #[test]
    fn keys_end_it_or_move() {
        let key = |code, modifiers| wish(&KeyEvent::new(code, modifiers));
        assert_eq!(Some(Wish::End), key(KeyCode::Char('q'), KeyModifiers::NONE));
        assert_eq!(Some(Wish::End), key(KeyCode::Esc, KeyModifiers::NONE));
        assert_eq!(Some(Wish::End), key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert_eq!(None, key(KeyCode::Char('c'), KeyModifiers::NONE));
        assert_eq!(Some(Wish::Down), key(KeyCode::Down, KeyModifiers::NONE));
    }

    #[test]
    fn daemon_that_is_gone_is_said_until_it_is_back() {
        let (sender, news) = sync_channel(1);
        let mut view = view();
        sender.send(Err("no daemon answers at x\nstart one".into())).unwrap();
        assert!(view.take(&news));
        assert_eq!("no daemon answers at x", drawn(&view, 80, 24)[1]);
        sender.send(Ok(super::tests::view().snapshot.unwrap())).unwrap();
        assert!(view.take(&news));
        assert!(drawn(&view, 80, 24)[1].starts_with("WORKER"));
        drop(sender);
        assert!(!view.take(&news));
    }
}
