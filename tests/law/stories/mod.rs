//! Stories: each runs on the memory store and on Redis, and must end in the same way.

mod beside;
mod blocks;
mod calendar;
mod cases;
mod changed;
pub(super) mod dedupe;
mod defects;
mod edges;
mod in_flight;
mod lists;
mod lives;
mod partial;
mod refunds;
mod resets;
mod settling;
mod together;
mod waits;

/// Makes two tests of each story, one for each store.
macro_rules! told_to_both {
    ($($story:ident)*) => {
        mod memory {$(
            #[tokio::test(flavor = "local")]
            async fn $story() {
                super::$story(&crate::law::under_test::UnderTest::memory()).await;
            }
        )*}

        mod redis {$(
            #[tokio::test(flavor = "local")]
            async fn $story() {
                super::$story(&crate::law::under_test::UnderTest::redis().await).await;
            }
        )*}
    };
}

use told_to_both;
