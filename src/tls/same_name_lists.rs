//! Revocation lists of authorities that share a name, such as an authority that continues with a new key. Of the lists
//! of one name webpki uses the first alone, and refuses the client if another key has signed it: so the lists of each
//! key have a turn as the first. In each turn a list counts only for certificates of the key that has signed it.

use super::revocation_list::RevocationList;
use rustls::pki_types::CertificateRevocationListDer;
use std::collections::HashMap;

/// A list in the verifier's form, with its facts.
pub(super) type ReadList = (
    CertificateRevocationListDer<'static>,
    Option<RevocationList>,
);

/// Most turns. An authority changes its key once in years.
const MOST_TURNS: usize = 8;

/// The lists once for each turn, sorted by precedence. Without two keys of one name there is one turn.
pub(super) fn turns(lists: &[ReadList]) -> Vec<Vec<CertificateRevocationListDer<'static>>> {
    let ranks = ranks(lists);
    let count = ranks.iter().max().map_or(1, |most| most + 1);
    let turn = |turn: usize| {
        let mut order: Vec<usize> = (0..lists.len()).collect();
        order.sort_by_key(|at| (ranks[*at] + count - turn) % count);
        order.into_iter().map(|at| lists[at].0.clone()).collect()
    };
    (0..count.min(MOST_TURNS)).map(turn).collect()
}

/// For each list, the number of other keys of its issuer's name that have lists before it.
fn ranks(lists: &[ReadList]) -> Vec<usize> {
    let mut keys: HashMap<&str, HashMap<Option<&[u8]>, usize>> = HashMap::new();
    let mut all = Vec::with_capacity(lists.len());
    for (_, list) in lists {
        let rank = list.as_ref().map(|list| {
            let of_name = keys.entry(&list.issuer).or_default();
            let next = of_name.len();
            *of_name.entry(list.key()).or_insert(next)
        });
        all.push(rank.unwrap_or(0));
    }
    all
}
