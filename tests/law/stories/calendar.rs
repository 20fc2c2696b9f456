//! Days and months in time zones, with changes of daylight saving.

use super::told_to_both;
use crate::law::numbers::{CLIENT, SECOND, ask, calendar, limit};
use crate::law::under_test::{UnderTest, wait};
use jiff::tz::TimeZone;
use std::sync::Arc;
use tollgate::clock::Timestamp;
use tollgate::limit::calendar::Calendar;
use tollgate::limit::verdict::Wait;
use tollgate::limit::{Limit, Unit};

told_to_both! {
    a_month_is_as_long_as_it_is
    a_day_has_twenty_three_hours_or_twenty_five_when_clocks_change
    a_day_may_start_at_eight_by_the_clocks_on_the_wall
    a_day_that_a_zone_has_skipped_is_no_window
    quarters_begin_in_january_and_weeks_on_the_day_that_the_offset_says
    another_zone_keeps_the_count_of_a_day_that_reaches_into_its_own
    a_clock_that_steps_back_over_midnight_leaves_the_next_days_count
    a_refund_goes_back_into_its_own_day_only
}

const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;

fn of(unit: Unit, many: u32, zone: &str, offset: u64) -> Arc<Limit> {
    let calendar_of = Calendar {
        unit,
        many,
        zone: TimeZone::get(zone).unwrap(),
        zone_name: zone.into(),
        offset,
    };
    limit("calendar", calendar(2, calendar_of))
}

fn at(text: &str) -> Timestamp {
    let instant: jiff::Timestamp = text.parse().unwrap();
    Timestamp::from_micros(instant.as_microsecond().try_into().unwrap())
}

/// Uses up the limit at `from`. Checks that nothing is left until `length` later, and that everything is left then.
async fn full_for(store: &UnderTest, limit: &Arc<Limit>, from: &str, length: u64) {
    let from = at(from);
    let (_, verdict) = store.one(from, ask(limit, 2)).await;
    assert_eq!((verdict.remaining, verdict.reset), (0, length), "{from}");
    let (ruling, _) = store.one(from.plus(length - 1), ask(limit, 1)).await;
    assert_eq!(wait(ruling), Some(Wait::Micros(1)), "{from}");
    let (_, verdict) = store.one(from.plus(length), ask(limit, 0)).await;
    assert_eq!((verdict.remaining, verdict.reset), (2, 0), "{from}");
}

async fn a_month_is_as_long_as_it_is(store: &UnderTest) {
    let month = of(Unit::Month, 1, "UTC", 0);
    full_for(store, &month, "2026-02-01T00:00:00Z", 28 * DAY).await;
    full_for(store, &month, "2028-02-01T00:00:00Z", 29 * DAY).await;
    full_for(store, &month, "2028-03-01T00:00:00Z", 31 * DAY).await;
    full_for(store, &month, "2026-12-31T23:59:59.999998Z", 2).await;
    // A clock that counts seconds since the epoch has no leap second.
    full_for(store, &month, "2016-12-31T23:59:59Z", SECOND).await;
    let berlin = of(Unit::Month, 1, "Europe/Berlin", 0);
    full_for(store, &berlin, "2026-03-01T00:00:00+01:00", 31 * DAY - HOUR).await;
    full_for(store, &berlin, "2026-10-01T00:00:00+02:00", 31 * DAY + HOUR).await;
}

async fn a_day_has_twenty_three_hours_or_twenty_five_when_clocks_change(store: &UnderTest) {
    let day = of(Unit::Day, 1, "Europe/Berlin", 0);
    full_for(store, &day, "2026-03-28T00:00:00+01:00", 24 * HOUR).await;
    full_for(store, &day, "2026-03-29T00:00:00+01:00", 23 * HOUR).await;
    full_for(store, &day, "2026-10-25T00:00:00+02:00", 25 * HOUR).await;
    full_for(store, &day, "2026-10-26T00:00:00+01:00", 24 * HOUR).await;
    // Midnight itself is skipped on this day, so the day starts at one.
    let cairo = of(Unit::Day, 1, "Africa/Cairo", 0);
    full_for(store, &cairo, "2026-04-24T01:00:00+03:00", 23 * HOUR).await;
}

async fn a_day_may_start_at_eight_by_the_clocks_on_the_wall(store: &UnderTest) {
    let shift = of(Unit::Day, 1, "America/New_York", 8 * HOUR);
    full_for(store, &shift, "2026-03-07T08:00:00-05:00", 23 * HOUR).await;
    full_for(store, &shift, "2026-03-08T08:00:00-04:00", 24 * HOUR).await;
    full_for(store, &shift, "2026-10-31T08:00:00-04:00", 25 * HOUR).await;
    full_for(store, &shift, "2026-11-02T07:59:59-05:00", SECOND).await;
    // The day starts at half past two, which is skipped on one day, and comes twice on another.
    let odd = of(Unit::Day, 1, "Europe/Berlin", 2 * HOUR + HOUR / 2);
    full_for(store, &odd, "2026-03-28T02:30:00+01:00", 24 * HOUR).await;
    full_for(store, &odd, "2026-03-29T03:30:00+02:00", 23 * HOUR).await;
    full_for(store, &odd, "2026-10-25T02:30:00+02:00", 25 * HOUR).await;
}

async fn a_day_that_a_zone_has_skipped_is_no_window(store: &UnderTest) {
    let apia = of(Unit::Day, 1, "Pacific/Apia", 0);
    full_for(store, &apia, "2011-12-29T00:00:00-10:00", 24 * HOUR).await;
    full_for(store, &apia, "2011-12-31T00:00:00+14:00", 24 * HOUR).await;
}

async fn quarters_begin_in_january_and_weeks_on_the_day_that_the_offset_says(store: &UnderTest) {
    let quarter = of(Unit::Month, 3, "UTC", 0);
    full_for(store, &quarter, "2026-01-01T00:00:00Z", 90 * DAY).await;
    full_for(store, &quarter, "2026-11-30T00:00:00Z", 32 * DAY).await;
    let fiscal = of(Unit::Month, 1, "UTC", 14 * DAY);
    full_for(store, &fiscal, "2026-02-15T00:00:00Z", 28 * DAY).await;
    // The epoch was a Thursday.
    let monday = of(Unit::Day, 7, "UTC", 4 * DAY);
    full_for(store, &monday, "2026-11-16T00:00:00Z", 7 * DAY).await;
    let week = of(Unit::Week, 1, "UTC", 0);
    full_for(store, &week, "2026-11-16T00:00:00Z", 7 * DAY).await;
    full_for(store, &week, "2026-11-22T23:59:59Z", SECOND).await;
    let berlin = of(Unit::Week, 1, "Europe/Berlin", 0);
    full_for(store, &berlin, "2026-10-19T00:00:00+02:00", 7 * DAY + HOUR).await;
}

async fn another_zone_keeps_the_count_of_a_day_that_reaches_into_its_own(store: &UnderTest) {
    let (utc, tokyo) = (
        of(Unit::Day, 1, "UTC", 0),
        of(Unit::Day, 1, "Asia/Tokyo", 0),
    );
    store.take(at("2026-06-01T10:00:00Z"), ask(&utc, 2)).await;
    // In Tokyo it is the second of the month, and the first day of UTC reaches into it.
    let (ruling, _) = store.one(at("2026-06-01T16:00:00Z"), ask(&tokyo, 1)).await;
    assert_eq!(wait(ruling), Some(Wait::Micros(23 * HOUR)));
    let (ruling, _) = store.one(at("2026-06-02T15:00:00Z"), ask(&tokyo, 1)).await;
    assert_eq!(wait(ruling), None);
}

async fn a_refund_goes_back_into_its_own_day_only(store: &UnderTest) {
    let day = of(Unit::Day, 1, "Europe/Berlin", 0);
    let noon = at("2026-10-25T12:00:00+01:00");
    let early = store.take(noon, ask(&day, 1)).await;
    let late = store.take(noon, ask(&day, 1)).await;
    store.refund(noon, ask(&day, 1), early).await;
    let (_, verdict) = store.one(noon, ask(&day, 0)).await;
    assert_eq!(verdict.remaining, 1);
    let midnight = at("2026-10-26T00:00:00+01:00");
    store.take(midnight, ask(&day, 1)).await;
    store.refund(midnight, ask(&day, 1), late).await;
    let (_, verdict) = store.one(midnight, ask(&day, 0)).await;
    assert_eq!(verdict.remaining, 1);
    assert!(store.state(&day, CLIENT).await.is_some());
}

async fn a_clock_that_steps_back_over_midnight_leaves_the_next_days_count(store: &UnderTest) {
    let day = of(Unit::Day, 1, "Europe/Berlin", 0);
    let month = of(Unit::Month, 1, "Europe/Berlin", 0);
    // The last day of October has passed. The first day of November and the month have their usual lengths.
    for (limit, length) in [(&day, DAY), (&month, 30 * DAY)] {
        let (before, midnight) = (
            at("2026-10-31T23:59:59+01:00"),
            at("2026-11-01T00:00:00+01:00"),
        );
        store.take(before, ask(limit, 2)).await;
        store.take(midnight, ask(limit, 1)).await;
        // The clock is back in October: one unit is left, of the two units of November.
        let left = store.take(before, ask(limit, 1)).await;
        let (ruling, verdict) = store.one(before, ask(limit, 1)).await;
        let wanted = (Some(Wait::Micros(length + SECOND)), 0);
        assert_eq!((wait(ruling), verdict.remaining), wanted);
        let (ruling, _) = store.one(midnight, ask(limit, 1)).await;
        assert_eq!(wait(ruling), Some(Wait::Micros(length)));
        // The charge of that time is given back to November.
        store.refund(before, ask(limit, 1), left).await;
        let (_, verdict) = store.one(midnight, ask(limit, 0)).await;
        assert_eq!(verdict.remaining, 1);
        let (_, verdict) = store.one(midnight.plus(length), ask(limit, 0)).await;
        assert_eq!((verdict.remaining, verdict.reset), (2, 0));
    }
}
