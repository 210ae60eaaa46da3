//! `sluice bind` and `sluice unbind`: change the kernel driver of a card. Both commands work without a daemon.

use std::io::Write;

use serde_json::json;
use sluice_daemon::bind::{self, Done, Wish};

use crate::arguments::{Bind, Unbind};
use crate::columns::{Align::Left, Align::Right, Columns};
use crate::exit::CommandError;

/// Bind a card to a driver, or list the cards of this machine.
///
/// # Errors
/// See [`bind::BindError`].
pub fn bind(arguments: &Bind, output: &mut dyn Write) -> Result<(), CommandError> {
    let Some(card) = arguments.card else {
        return list(arguments.json, output);
    };
    let done = bind::bind(&Wish {
        card,
        driver: arguments.driver.clone(),
        force: arguments.force,
        save: arguments.save,
        dry_run: arguments.dry_run,
    })?;
    if arguments.json {
        return as_json(&done, output);
    }
    if arguments.dry_run {
        return steps(&done, output);
    }
    changed(&done, output)?;
    let path = done.rule.path.display();
    match done.rule.is_saved {
        true => writeln!(
            output,
            "{path} binds the card after each boot, and when the card is plugged in again"
        )?,
        false => write!(
            output,
            "The card is bound until the next boot. With --save, the following rule is written to {path}:\n{}",
            done.rule.text
        )?,
    }
    Ok(())
}

/// Bind a card to its kernel driver again.
///
/// # Errors
/// See [`bind::BindError`].
pub fn unbind(arguments: &Unbind, output: &mut dyn Write) -> Result<(), CommandError> {
    let done = bind::unbind(&Wish {
        card: arguments.card,
        driver: None,
        force: arguments.force,
        save: false,
        dry_run: arguments.dry_run,
    })?;
    match (arguments.json, arguments.dry_run) {
        (true, _) => as_json(&done, output),
        (_, true) => steps(&done, output),
        _ => changed(&done, output),
    }
}

fn as_json(done: &Done, output: &mut dyn Write) -> Result<(), CommandError> {
    Ok(writeln!(output, "{:#}", json!(done))?)
}

/// Print the commands that a dry run would execute.
fn steps(done: &Done, output: &mut dyn Write) -> Result<(), CommandError> {
    Ok(done.steps.iter().try_for_each(|step| writeln!(output, "{step}"))?)
}

fn changed(done: &Done, output: &mut dyn Write) -> Result<(), CommandError> {
    let named = |driver: &Option<String>| driver.clone().unwrap_or("no driver".into());
    let (was, now) = (named(&done.was), named(&done.driver));
    let interfaces = match &done.interfaces[..] {
        [] => String::new(),
        names => format!(", interface {}", names.join(" ")),
    };
    match was == now {
        true => writeln!(output, "{}: {now}, as before{interfaces}", done.card)?,
        false => writeln!(output, "{}: {now}, before {was}{interfaces}", done.card)?,
    }
    Ok(done.notes.iter().try_for_each(|note| writeln!(output, "{note}"))?)
}

fn list(json: bool, output: &mut dyn Write) -> Result<(), CommandError> {
    let cards = bind::list();
    if json {
        return Ok(writeln!(output, "{:#}", json!(cards))?);
    }
    let mut columns = Columns::new(&[
        ("CARD", Left),
        ("DRIVER", Left),
        ("MODE", Left),
        ("INTERFACE", Left),
        ("GROUP", Right),
        ("NODE", Right),
        ("NAME", Left),
    ]);
    let or_dash = |text: Option<String>| text.unwrap_or("-".into());
    for card in cards {
        columns.row([
            card.card,
            or_dash(card.driver),
            card.mode,
            or_dash((!card.interfaces.is_empty()).then(|| card.interfaces.join(" "))),
            or_dash(card.group.map(|group| group.to_string())),
            or_dash(card.node.map(|node| node.to_string())),
            card.name.unwrap_or(card.id),
        ]);
    }
    Ok(columns.flush(output)?)
}
