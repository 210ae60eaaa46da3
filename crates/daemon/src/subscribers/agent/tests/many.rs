//! Tests with many sites: rate limit, priorities, and memory use with 100,000 sites.

use MessageType::{Discover, Release};

use super::*;

/// Maximum number of messages within any interval of one second.
fn most_within_a_second(sent: &[Sent]) -> usize {
    let mut first = 0;
    let mut most = 0;
    for (last, message) in sent.iter().enumerate() {
        while message.at - sent[first].at >= SECOND {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}

#[test]
fn ten_thousand_sites_begin_at_the_limit_and_each_ends_what_it_began() {
    let mut world = World::new(settings());
    (0..10_000).for_each(|site| world.want(site));
    world.run(seconds(21));
    assert_eq!(10_000, world.agent.leases().count());
    assert_eq!(20_000, world.sent.len());
    let most = most_within_a_second(&world.sent);
    assert!((985..=1_000).contains(&most), "{most} messages in a second");
    // Requests for offers are sent before the discover messages of other sites.
    let mut begun = BTreeMap::new();
    for sent in &world.sent {
        let start = *begun.entry(sent.transmit.site).or_insert(sent.at);
        assert!(sent.at - start < 50 * MILLISECOND, "{sent:?} after {}", sent.at - start);
    }
    world.agent.check();
}

#[test]
fn rebinding_comes_before_renewing_and_that_before_who_is_new() {
    let mut world = World::new(settings());
    (0..3).for_each(|site| world.want(site));
    world.run(seconds(1_650));
    let leases: Vec<_> = (0..3).map(|site| world.lease(site)).collect();
    world
        .agent
        .configure(AgentSettings { rate: 1, ..settings() }, world.now);
    world.sent.clear();
    world.be_silent();
    let entries = [(0, 2_000), (1, 3_300), (2, 3_200)];
    for (site, elapsed) in entries {
        let now = world.now;
        let entry = world.agent.entry_mut(site);
        let shift = |time: Nanoseconds| now + time + seconds(3_600 - elapsed) - leases[site as usize].expires;
        (entry.renew, entry.rebind, entry.expires) = (shift(entry.renew), shift(entry.rebind), shift(entry.expires));
    }
    (3..6).for_each(|site| world.want(site));
    for site in 0..3 {
        let now = world.now;
        world.agent.elapse(site, now);
    }
    world.run(seconds(6));
    let order: Vec<_> = world.sent.iter().map(|sent| sent.transmit.site.0).collect();
    assert_eq!(vec![1, 2, 0, 3, 4, 5], order);
}

#[test]
fn nobody_starves_where_renewals_alone_exceed_the_limit() {
    let mut world = World::new(AgentSettings {
        rate: 100,
        shortest_lease: 1,
        renewal_wait: Duration::from_millis(10),
        ..settings()
    });
    world.server.lease = 20;
    (0..1_500).for_each(|site| world.want(site));
    world.run(seconds(120));
    let newcomer = 130_000;
    let start = world.now;
    world.want(newcomer);
    world.agent.forget(Site(3), start);
    world.run(seconds(300));
    let after = |kind: MessageType, site| {
        let found = world
            .sent
            .iter()
            .find(|sent| sent.at >= start && sent.kind == kind && sent.transmit.site == Site(site));
        found.is_some()
    };
    assert!(after(Discover, newcomer), "who is new is heard");
    assert!(
        after(Release, 3) || world.agent.state(Site(3)) == State::Idle,
        "who goes is heard"
    );
    assert!(most_within_a_second(&world.sent) <= 100);
    world.agent.check();
}

#[test]
fn limit_that_is_changed_holds_across_the_change() {
    let mut world = World::new(settings());
    (0..5_000).for_each(|site| world.want(site));
    for rate in [1_000, 500, 100, 800] {
        world.run(SECOND / 2);
        world.agent.configure(AgentSettings { rate, ..settings() }, world.now);
    }
    world.run(seconds(60));
    assert!(most_within_a_second(&world.sent) <= 1_000);
    assert_eq!(5_000, world.agent.leases().count());
}

/// Resident memory of this process in bytes.
fn memory() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok())
        .expect("pages")
        * 4_096
}

#[test]
fn hundred_thousand_sites_get_leases_and_renew_them() {
    const SITES: u32 = 100_000;
    let mut world = World::new(AgentSettings {
        rate: 5_000,
        ..settings()
    });
    world.remembers = false;
    let start = std::time::Instant::now();
    let before = memory();
    (0..SITES).for_each(|site| world.want(site));
    let wanted = memory();
    world.run(seconds(45));
    assert_eq!(SITES as usize, world.agent.leases().count());
    let bound = start.elapsed();
    world.run(seconds(1_900));
    assert_eq!(SITES as usize, world.agent.leases().count());
    assert_eq!(
        (u64::from(SITES), 0),
        (world.agent.counters().requests[2], world.agent.counters().requests[3])
    );
    assert_eq!(Vec::<(u32, LossReason)>::new(), world.losses());
    world.agent.check();
    println!(
        "{SITES} sites: {} bytes each while they wait, {} of them the record, bound in {bound:?}, renewed in {:?} (with the model of a server)",
        wanted.saturating_sub(before) / SITES as usize,
        size_of::<Entry>(),
        start.elapsed() - bound,
    );
}
