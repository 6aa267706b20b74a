//! The list of what a MUSIC interface is held to, whatever engine it runs on.

/// Makes a test of every check: `$run` is given its future, and runs it or says why it cannot.
macro_rules! every_music_check {
    ($run:path) => {
        every_music_check! { $run, clients,
            conductor_defines_polls_and_claims
            conductor_sends_messages
            conductor_cascades_its_order_locks
            voting_app_votes_to_its_end
            prom_takes_over_from_a_dead_site
            clients_of_the_first_generation
            robots_and_health_checks
        }
        every_music_check! { $run, better,
            nothing_is_dropped_that_was_answered_success
            what_expires_is_seen_no_more_and_goes
            columns_written_at_the_same_time_are_all_kept
            keys_of_any_letters_are_locked_written_and_released
            locks_say_who_they_are_and_whose_turn_it_is
            who_does_not_hold_is_told_why
            whoever_would_wait_for_himself_is_refused
            a_lock_of_which_nobody_speaks_ends_and_an_old_one_is_evicted
            any_node_answers_for_a_lock_and_survives_its_home
            a_write_is_done_though_the_home_of_its_lock_is_gone
            composite_keys_orders_and_queues
            a_lock_outlives_its_lease_while_its_home_lives
            a_home_that_has_forgotten_goes_on
            what_does_not_fit_is_refused_with_its_bound
            wrong_inputs_have_one_clear_line_each
        }
    };
    ($run:path, $module:ident, $($check:ident)*) => {
        $(
            #[test]
            fn $check() {
                $run(crate::music::$module::$check());
            }
        )*
    };
}
