//! Groups of several: each rule of the protocol by itself. What they do together is the simulator's matter (`sim/`).

use bytes::Bytes;

use super::test_support::*;
use super::*;

fn message(from: u64, term: u64, body: Body) -> Message {
    Message { from: MemberId(from), term: Term(term), body }
}

fn is_append(body: &Body) -> bool {
    matches!(body, Body::Append { .. })
}

mod elections {
    use super::*;

    #[test]
    fn the_first_to_lose_patience_leads_and_the_others_know() {
        let mut group = Group::led_by_one(3);
        for id in 1..=3 {
            assert_eq!(group.raft(id).leader(), Some(MemberId(1)));
            assert_eq!(group.raft(id).commit(), Index(1), "the leader's first entry");
        }
    }

    #[test]
    fn nobody_hears_of_an_election_before_the_candidates_own_vote_is_durable() {
        let mut group = Group::new(3);
        group.peer(1).disk_hangs = true;
        group.lose_patience(1);
        group.settle();
        assert_eq!(group.raft(1).term(), Term(1), "the pre-vote was won");
        assert_eq!(group.delivered(|body| matches!(body, Body::Vote { .. })), 0);
        group.peer(1).disk_hangs = false;
        let written = group.peer(1).written;
        group.raft(1).persisted(written);
        group.settle();
        assert!(group.leads(1));
    }

    #[test]
    fn a_vote_is_said_after_it_is_durable() {
        let mut group = Group::new(3);
        group.peer(2).disk_hangs = true;
        group.raft(2).step(message(1, 1, Body::Vote { last: EntryId::ZERO, transfer: false }));
        assert_eq!(group.peer(2).turn(), []);
        let written = group.peer(2).written;
        group.raft(2).persisted(written);
        let granted = Envelope { to: MemberId(1), message: message(2, 1, Body::VoteReply { granted: true }) };
        assert_eq!(group.peer(2).turn(), std::slice::from_ref(&granted));
        group.raft(2).step(message(3, 1, Body::Vote { last: EntryId::new(9, 9), transfer: false }));
        let denied = Envelope { to: MemberId(3), message: message(2, 1, Body::VoteReply { granted: false }) };
        assert_eq!(group.peer(2).turn(), [denied], "one vote per term");
        group.restart(2);
        group.raft(2).step(message(3, 1, Body::Vote { last: EntryId::new(9, 9), transfer: false }));
        assert!(
            group.peer(2).turn().iter().all(|envelope| envelope.message.body == Body::VoteReply { granted: false })
        );
    }

    #[test]
    fn a_vote_not_yet_said_is_dropped_with_its_term() {
        let mut group = Group::new(3);
        group.peer(2).disk_hangs = true;
        group.raft(2).step(message(1, 1, Body::Vote { last: EntryId::ZERO, transfer: false }));
        group.peer(2).turn();
        group.raft(2).step(message(3, 2, Body::Vote { last: EntryId::ZERO, transfer: false }));
        group.peer(2).turn();
        let written = group.peer(2).written;
        group.raft(2).persisted(written);
        let messages = group.peer(2).turn();
        assert_eq!(messages.len(), 1);
        assert_eq!((messages[0].to, messages[0].message.term), (MemberId(3), Term(2)));
    }

    #[test]
    fn a_member_behind_gets_no_vote() {
        let mut group = Group::led_by_one(3);
        let last = group.raft(2).last();
        let check = |group: &mut Group, candidate: EntryId, expected: bool| {
            let term = group.raft(2).term().next();
            // A transfer, so that the living leader is no reason.
            let vote = Message { from: MemberId(3), term, body: Body::Vote { last: candidate, transfer: true } };
            group.raft(2).step(vote);
            let said = group.peer(2).turn();
            assert!(
                said.iter().any(|envelope| envelope.message.body == Body::VoteReply { granted: expected }),
                "{candidate} {said:?}"
            );
        };
        check(&mut group, EntryId { index: last.index.previous(), ..last }, false);
        check(&mut group, EntryId { term: Term(0), index: Index(99) }, false);
        check(&mut group, last, true);
    }

    #[test]
    fn a_member_that_was_cut_off_disturbs_nobody() {
        let mut group = Group::led_by_one(3);
        group.cut_off.insert(3);
        group.pass(ELECTION * 10);
        assert_eq!(group.raft(3).term(), Term(1), "it found nobody who would vote");
        group.propose(1, "meanwhile");
        group.settle();
        group.cut_off.clear();
        group.pass(ELECTION);
        assert!(group.leads(1));
        assert_eq!(group.raft(1).term(), Term(1));
        assert_eq!(group.peer(3).data(), [b"meanwhile"]);
    }

    #[test]
    fn who_hears_a_leader_votes_for_nobody_else_unless_the_leader_asks() {
        let mut group = Group::led_by_one(3);
        let last = EntryId::new(9, 9);
        group.raft(2).step(message(3, 7, Body::Vote { last, transfer: false }));
        assert_eq!(group.peer(2).turn(), []);
        assert_eq!(group.raft(2).term(), Term(1));
        group.raft(2).step(message(3, 7, Body::PreVote { last }));
        assert_eq!(group.peer(2).turn()[0].message.body, Body::PreVoteReply { granted: false });
        group.raft(2).step(message(3, 7, Body::Vote { last, transfer: true }));
        assert_eq!(group.peer(2).turn()[0].message.body, Body::VoteReply { granted: true });
    }

    #[test]
    fn a_leader_without_a_quorum_steps_down_and_its_reads_are_lost() {
        let mut group = Group::led_by_one(3);
        group.cut_off.insert(1);
        let read = group.raft(1).read_barrier().unwrap();
        group.pass(ELECTION * 3);
        assert!(!group.leads(1));
        assert_eq!(group.peer(1).reads, [ReadDone { id: read, index: None }]);
        assert!(group.leads(2) || group.leads(3), "the others go on");
        assert!(matches!(group.raft(1).propose(Bytes::new()), Err(Refused::NotLeader { .. })));
    }

    #[test]
    fn a_member_stuck_in_a_later_term_is_followed_there() {
        let mut group = Group::led_by_one(3);
        // As after an election that it could not win.
        group.cut_off.insert(3);
        group.raft(3).step(message(2, 5, Body::VoteReply { granted: false }));
        group.settle();
        assert_eq!(group.raft(3).term(), Term(5));
        group.cut_off.clear();
        group.pass(ELECTION * 5);
        let leader = group.raft(3).leader().expect("it follows somebody, or leads");
        assert!(group.leads(leader.0));
        assert!(group.raft(1).term() > Term(5));
    }
}

mod replication {
    use super::*;

    #[test]
    fn proposals_of_one_turn_share_one_message_per_follower() {
        let mut group = Group::led_by_one(3);
        group.delivered(|_| true);
        for text in ["a", "b", "c"] {
            group.propose(1, text);
        }
        group.settle();
        assert_eq!(group.delivered(is_append), 2);
        for id in 1..=3 {
            assert_eq!(group.peer(id).data(), [b"a", b"b", b"c"]);
        }
    }

    #[test]
    fn followers_write_while_the_leader_does_and_two_disks_suffice() {
        let mut group = Group::led_by_one(3);
        group.peer(1).disk_hangs = true;
        group.propose(1, "x");
        group.settle();
        assert_eq!(group.raft(1).commit(), Index(2), "two followers have it");
        assert!(group.peer(1).data().is_empty(), "but here it is not persisted yet");
        let written = group.peer(1).written;
        group.raft(1).persisted(written);
        group.settle();
        assert_eq!(group.peer(1).data(), [b"x"]);
    }

    #[test]
    fn an_entry_is_acknowledged_after_it_is_durable() {
        let mut group = Group::led_by_one(3);
        for id in [2, 3] {
            group.peer(id).disk_hangs = true;
        }
        group.propose(1, "x");
        group.settle();
        assert_eq!(group.raft(1).commit(), Index(1));
        let written = group.peer(3).written;
        group.raft(3).persisted(written);
        group.settle();
        assert_eq!(group.raft(1).commit(), Index(2));
    }

    #[test]
    fn a_write_that_ends_after_its_entries_were_cut_off_counts_for_nothing() {
        let mut group = Group::new(3);
        group.peer(2).disk_hangs = true;
        let data = |term, index| Entry { id: EntryId::new(term, index), payload: Payload::Data(Bytes::from("x")) };
        let append = |prev, entries| Body::Append { prev, entries, commit: Index::ZERO };
        group.raft(2).step(message(1, 1, append(EntryId::ZERO, vec![data(1, 1), data(1, 2)])));
        group.peer(2).turn();
        let first = group.peer(2).written;
        group.raft(2).step(message(3, 2, append(EntryId::new(1, 1), vec![data(2, 2)])));
        group.peer(2).turn();
        group.raft(2).persisted(first);
        assert_eq!(group.raft(2).status().persisted, Index(1));
        let second = group.peer(2).written;
        group.raft(2).persisted(second);
        assert_eq!(group.raft(2).status().persisted, Index(2));
    }

    #[test]
    fn entries_of_an_earlier_term_are_not_committed_by_counting() {
        // Figure 8 of the Raft paper, up to its crucial moment.
        let mut group = Group::led_by_one(3);
        group.cut_off.extend([2, 3]);
        group.propose(1, "old");
        group.settle();
        group.cut_off.clear();
        group.cut_off.insert(3);
        group.restart(1);
        group.peer(1).disk_hangs = true;
        group.lose_patience(1);
        for _ in 0..4 {
            let written = group.peer(1).written;
            group.raft(1).persisted(written);
            group.settle();
            if group.leads(1) {
                break;
            }
        }
        assert!(group.leads(1));
        group.settle();
        let old = Index(2);
        assert_eq!(group.raft(2).last().index, old.next(), "it has the old entry and the new leader's first");
        assert!(
            group.raft(1).commit() < old,
            "and still it is not committed: the new leader's own entry has no quorum yet"
        );
        let written = group.peer(1).written;
        group.raft(1).persisted(written);
        group.settle();
        assert_eq!(group.raft(1).commit(), old.next(), "with it, both are");
    }

    #[test]
    fn what_differs_is_found_in_a_round_per_term_and_replaced() {
        let mut group = Group::led_by_one(3);
        group.propose(1, "kept");
        group.settle();
        // Member 1 goes on alone.
        group.cut_off.insert(1);
        for _ in 0..50 {
            group.propose(1, "lost");
            group.settle();
        }
        group.elect(2);
        for _ in 0..50 {
            group.propose(2, "won");
        }
        group.settle();
        group.delivered(|_| true);
        group.cut_off.clear();
        group.pass(ELECTION);
        assert!(group.delivered(|body| matches!(body, Body::AppendRefused { .. })) <= 2);
        let expected = group.peer(2).data().into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(group.peer(1).data(), expected);
    }

    #[test]
    fn lost_messages_are_sent_again() {
        let mut group = Group::led_by_one(3);
        for text in ["a", "b", "c"] {
            group.propose(1, text);
            group.lose_messages();
        }
        group.pass(ELECTION);
        assert_eq!(group.peer(3).data(), [b"a", b"b", b"c"]);
        assert!(group.leads(1));
    }

    #[test]
    fn a_silent_follower_gets_a_bounded_number_of_messages() {
        let mut group = Group::new(2);
        let config = Config { inflight_appends_max: 3, ..Config::of(MemberId(1), 1) };
        let peer = Peer::new(config, &group.beginning);
        group.peers.insert(1, peer);
        group.elect(1);
        let mut sent = 0;
        for _ in 0..10 {
            group.propose(1, "x");
            sent += group.peer(1).turn().iter().filter(|envelope| is_append(&envelope.message.body)).count();
        }
        assert_eq!(sent, 3);
    }

    #[test]
    fn unsound_messages_are_passed_over() {
        let mut group = Group::led_by_one(3);
        let entry = |term, index| Entry { id: EntryId::new(term, index), payload: Payload::Noop };
        let before = group.raft(2).status();
        let prev = before.last;
        for entries in [vec![entry(1, 3)], vec![entry(1, 2), entry(1, 4)], vec![entry(2, 2)], vec![entry(0, 2)]] {
            group.raft(2).step(message(1, 1, Body::Append { prev, entries, commit: Index(9) }));
            group.peer(2).turn();
        }
        assert_eq!(group.raft(2).status(), before);
        group.raft(1).step(message(2, 1, Body::Appended { matched: Index(99) }));
        group.raft(1).step(message(9, 1, Body::Appended { matched: Index(1) }));
        group.raft(1).step(message(1, 9, Body::Outdated));
        assert_eq!(group.raft(1).commit(), Index(1));
        assert!(group.leads(1));
    }
}

mod reads {
    use super::*;

    #[test]
    fn barriers_share_a_round_and_those_who_come_later_the_next() {
        let mut group = Group::led_by_one(3);
        group.settle();
        group.delivered(|_| true);
        let first: Vec<ReadId> = (0..5).map(|_| group.raft(1).read_barrier().unwrap()).collect();
        group.collect();
        let later = group.raft(1).read_barrier().unwrap();
        group.settle();
        assert_eq!(group.delivered(|body| matches!(body, Body::Heartbeat { .. })), 4, "two rounds, two followers");
        let reads = std::mem::take(&mut group.peer(1).reads);
        assert_eq!(reads.iter().map(|read| read.id).collect::<Vec<_>>(), [first, vec![later]].concat());
        assert!(reads.iter().all(|read| read.index == Some(Index(1))));
    }

    #[test]
    fn a_leader_that_was_replaced_grants_nothing() {
        let mut group = Group::led_by_one(3);
        group.cut_off.insert(1);
        group.elect(2);
        group.propose(2, "newer");
        group.settle();
        let read = group.raft(1).read_barrier().unwrap();
        group.settle();
        assert!(group.leads(1) && group.peer(1).reads.is_empty(), "it does not know yet, and does not guess");
        group.cut_off.clear();
        group.pass(ELECTION);
        assert_eq!(group.peer(1).reads, [ReadDone { id: read, index: None }]);
    }

    #[test]
    fn a_round_whose_messages_are_lost_ends_with_the_next_heartbeats() {
        let mut group = Group::led_by_one(3);
        let read = group.raft(1).read_barrier().unwrap();
        group.lose_messages();
        group.pass(ELECTION / 2);
        assert_eq!(group.peer(1).reads, [ReadDone { id: read, index: Some(Index(1)) }]);
    }
}

mod transfer {
    use super::*;

    #[test]
    fn leadership_goes_to_the_one_named() {
        let mut group = Group::led_by_one(3);
        group.cut_off.insert(3);
        group.propose(1, "before");
        group.settle();
        group.cut_off.clear();
        group.raft(1).transfer_leadership(MemberId(3)).unwrap();
        assert_eq!(group.raft(1).propose(Bytes::new()), Err(Refused::Transferring { to: MemberId(3) }));
        group.pass(ELECTION / 2);
        assert!(group.leads(3), "without waiting for a timeout, after it has everything");
        assert_eq!(group.peer(3).data(), [b"before"]);
    }

    #[test]
    fn it_is_given_up_where_the_other_does_not_answer() {
        let mut group = Group::led_by_one(3);
        group.cut_off.insert(3);
        group.raft(1).transfer_leadership(MemberId(3)).unwrap();
        group.pass(ELECTION + ELECTION / 2);
        assert!(group.leads(1));
        group.propose(1, "again");
    }

    #[test]
    fn only_another_voter_can_be_named() {
        let mut group = Group::led_by_one(3);
        for id in [1, 4] {
            assert_eq!(group.raft(1).transfer_leadership(MemberId(id)), Err(Refused::NotAnotherVoter(MemberId(id))));
        }
        assert!(matches!(
            group.raft(2).transfer_leadership(MemberId(3)),
            Err(Refused::NotLeader { leader: Some(MemberId(1)) })
        ));
    }
}

mod members {
    use super::*;

    fn join(group: &mut Group, id: u64) {
        let peer = Peer::new(Config::of(MemberId(id), id), &group.beginning);
        group.peers.insert(id, peer);
        group.raft(1).change_members(Change::AddLearner(MemberId(id))).unwrap();
    }

    #[test]
    fn a_learner_catches_up_and_becomes_a_voter() {
        let mut group = Group::led_by_one(1);
        for _ in 0..300 {
            group.propose(1, "x");
        }
        group.settle();
        join(&mut group, 2);
        assert!(matches!(
            group.raft(1).change_members(Change::Promote(MemberId(2))),
            Err(Refused::ChangePending { .. })
        ));
        group.collect();
        let behind = group.raft(1).change_members(Change::Promote(MemberId(2)));
        assert!(matches!(behind, Err(Refused::Behind { .. })), "{behind:?}");
        group.settle();
        group.raft(1).change_members(Change::Promote(MemberId(2))).unwrap();
        group.settle();
        assert_eq!(group.peer(2).data().len(), 300);
        assert_eq!(group.raft(2).members().voters().len(), 2);
        group.cut_off.insert(2);
        group.propose(1, "alone");
        group.settle();
        assert_eq!(group.peer(1).data().len(), 300, "now both are needed");
    }

    #[test]
    fn a_learner_counts_for_nothing_and_never_seeks_election() {
        let mut group = Group::led_by_one(1);
        join(&mut group, 2);
        group.settle();
        group.cut_off.insert(2);
        group.propose(1, "without it");
        group.settle();
        assert_eq!(group.peer(1).data(), [b"without it"]);
        group.pass(ELECTION * 5);
        assert_eq!(group.raft(2).role(), Role::Follower { leader: Some(MemberId(1)) });
        assert_eq!(group.raft(2).next_due(), None);
    }

    #[test]
    fn a_leader_that_removes_itself_hands_over() {
        let mut group = Group::led_by_one(3);
        group.raft(1).change_members(Change::Remove(MemberId(1))).unwrap();
        group.settle();
        assert!(!group.leads(1));
        assert!(group.leads(2) || group.leads(3), "without waiting for a timeout");
        group.pass(ELECTION * 5);
        assert!(group.leads(2) || group.leads(3));
        assert!(!group.leads(1), "it is out");
    }

    #[test]
    fn a_leader_that_leaves_and_alone_has_that_entry_leads_again_to_spread_it() {
        // Found by the simulator: everybody else lacks entries of the departing member, so nobody else can win.
        let mut group = Group::led_by_one(2);
        group.cut_off.insert(2);
        group.raft(1).change_members(Change::Demote(MemberId(1))).unwrap();
        group.settle();
        group.pass(ELECTION * 3);
        assert!(!group.leads(1), "no quorum");
        group.cut_off.clear();
        group.pass(ELECTION * 10);
        assert!(group.leads(2));
        assert!(!group.raft(2).members().is_voter(MemberId(1)));
    }

    #[test]
    fn a_change_that_is_cut_off_is_taken_back() {
        let mut group = Group::led_by_one(3);
        group.cut_off.insert(1);
        group.raft(1).change_members(Change::Remove(MemberId(3))).unwrap();
        group.settle();
        assert_eq!(group.raft(1).members().voters().len(), 2);
        group.elect(2);
        group.cut_off.clear();
        group.pass(ELECTION);
        assert_eq!(group.raft(1).members().voters().len(), 3);
    }

    #[test]
    fn a_new_leader_changes_nothing_before_its_first_entry_is_committed() {
        let mut group = Group::led_by_one(3);
        group.lose_patience(2);
        while !group.leads(2) {
            group.collect();
            let Some(envelope) = group.deliver_next() else { panic!("no leader") };
            assert!(envelope.to.0 <= 3);
        }
        let noop = group.raft(2).last().index;
        assert_eq!(group.raft(2).change_members(Change::Remove(MemberId(3))), Err(Refused::TermUnconfirmed { noop }));
    }
}

mod snapshots {
    use super::*;

    /// Member 3 misses entries that the leader then cuts off.
    fn one_behind() -> (Group, SnapshotMark) {
        let mut group = Group::led_by_one(3);
        group.cut_off.insert(3);
        for _ in 0..5 {
            group.propose(1, "x");
        }
        group.settle();
        let commit = group.raft(1).commit();
        let mark = group.raft(1).snapshot_taken(commit);
        group.raft(1).cut_log(commit);
        group.peer(1).disk.entries.clear();
        group.cut_off.clear();
        group.pass(ELECTION / 2);
        (group, mark)
    }

    #[test]
    fn a_member_too_far_behind_fetches_installs_and_goes_on() {
        let (mut group, mark) = one_behind();
        assert_eq!(group.peer(3).fetches, [Fetch { from: MemberId(1), mark: mark.clone() }], "asked for once");
        assert!(group.raft(3).snapshot_fetched(mark.clone()));
        group.propose(1, "after");
        group.pass(ELECTION);
        assert_eq!(group.peer(3).disk.cut, mark.last);
        assert_eq!(group.peer(3).data(), [b"after"]);
        assert_eq!(group.raft(3).commit(), group.raft(1).commit());
        assert!(!group.raft(3).snapshot_fetched(mark), "a second time it is of no use");
    }

    #[test]
    fn nothing_is_applied_on_a_snapshot_that_is_not_durable() {
        let (mut group, mark) = one_behind();
        group.peer(3).disk_hangs = true;
        assert!(group.raft(3).snapshot_fetched(mark.clone()));
        group.propose(1, "after");
        group.pass(ELECTION);
        assert!(group.peer(3).data().is_empty());
        assert!(group.raft(1).status().commit > mark.last.index);
    }

    #[test]
    fn a_fetch_that_failed_is_asked_for_again() {
        let (mut group, mark) = one_behind();
        group.raft(3).snapshot_failed();
        group.pass(ELECTION);
        assert_eq!(group.peer(3).fetches.len(), 2);
        assert_eq!(group.peer(3).fetches[1].mark, mark);
    }

    #[test]
    fn a_member_whose_log_has_it_all_needs_no_snapshot() {
        let mut group = Group::led_by_one(3);
        group.propose(1, "x");
        group.settle();
        let commit = group.raft(1).commit();
        let mark = group.raft(1).snapshot_taken(commit);
        group.restart(2);
        assert_eq!(group.raft(2).commit(), Index::ZERO);
        group.raft(2).step(message(1, 1, Body::SnapshotOffer { mark: mark.clone() }));
        let said = group.peer(2).turn();
        assert_eq!(said[0].message.body, Body::Appended { matched: mark.last.index });
        assert!(group.peer(2).fetches.is_empty());
        assert_eq!(group.raft(2).commit(), mark.last.index);
    }
}
