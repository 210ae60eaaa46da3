//! `sluice check`: what a configuration would run.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use sluice_daemon::config::Config;
use sluice_daemon::config::config::{Interface, Link};
use sluice_daemon::config::memory::Bytes;
use sluice_daemon::{Loaded, load};

use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;

/// Check a configuration and print what would run.
///
/// # Errors
/// The file can't be read, or is wrong.
pub fn check(file: &Path, json: bool, output: &mut dyn Write) -> Result<(), CommandError> {
    let loaded = load(file)?;
    if json {
        as_json(&loaded, output)
    } else {
        as_text(&loaded, output)
    }
}

fn as_text(loaded: &Loaded, output: &mut dyn Write) -> Result<(), CommandError> {
    let config = &loaded.checked.config;
    writeln!(output, "{}: this would run\n", loaded.name)?;
    let mut interfaces = Columns::new(&[
        ("INTERFACE", Align::Left),
        ("DEVICE", Align::Left),
        ("MTU", Align::Right),
        ("QUEUES", Align::Right),
        ("ADDRESSES", Align::Left),
    ]);
    for interface in &config.interfaces {
        interfaces.row([
            interface.name.clone(),
            device(config, interface),
            interface.mtu.to_string(),
            queues(interface),
            addresses(interface).join(" "),
        ]);
    }
    interfaces.flush(output)?;
    let cores: Vec<_> = config.cores.iter().map(u16::to_string).collect();
    writeln!(
        output,
        "\nWorkers on cores {} with {} shards\n",
        cores.join(", "),
        config.document.system.shards
    )?;
    let mut tables = Columns::new(&[
        ("TABLE", Align::Left),
        ("CAPACITY", Align::Right),
        ("MEMORY", Align::Right),
    ]);
    for table in &config.tables {
        tables.row([table.name.into(), grouped(table.entries), table.bytes.to_string()]);
    }
    tables.flush(output)?;
    let sum = config.tables.iter().map(|table| table.bytes.0).sum();
    writeln!(output, "{} of {} free", Bytes(sum), Bytes(loaded.machine.memory))?;
    for complaint in loaded.checked.advice.complaints() {
        writeln!(output, "\n{}:{}: {}", loaded.name, complaint.line, complaint.message)?;
    }
    Ok(())
}

fn as_json(loaded: &Loaded, output: &mut dyn Write) -> Result<(), CommandError> {
    let config = &loaded.checked.config;
    let interfaces: Vec<_> = config
        .interfaces
        .iter()
        .map(|interface| {
            json!({
                "name": interface.name,
                "device": device(config, interface),
                "mtu": interface.mtu,
                "addresses": addresses(interface),
            })
        })
        .collect();
    let tables: Vec<_> = config
        .tables
        .iter()
        .map(|table| json!({ "name": table.name, "capacity": table.entries, "bytes": table.bytes.0 }))
        .collect();
    let document = json!({
        "interfaces": interfaces,
        "cores": config.cores,
        "shards": config.document.system.shards,
        "tables": tables,
        "memory": loaded.machine.memory,
        "advice": loaded.checked.advice.complaints(),
    });
    writeln!(output, "{document:#}")?;
    Ok(())
}

fn device(config: &Config, interface: &Interface) -> String {
    match &interface.link {
        Link::Device { device, .. } => device.to_string(),
        Link::Bond { members, .. } => members.iter().map(ToString::to_string).collect::<Vec<_>>().join("+"),
        Link::Vlan { parent, tags } => {
            let parent = config
                .interfaces
                .get(usize::from(*parent))
                .map_or("?", |parent| &parent.name);
            format!("{parent} vlan {tags}")
        }
    }
}

fn queues(interface: &Interface) -> String {
    match &interface.link {
        Link::Device { queues, .. } | Link::Bond { queues, .. } => queues.map_or("auto".into(), |n| n.to_string()),
        Link::Vlan { .. } => "-".into(),
    }
}

fn addresses(interface: &Interface) -> Vec<String> {
    interface.addresses.iter().map(ToString::to_string).collect()
}
