"""The troubles of other trainers' users (the field study's section 2), and the tests that show this project is immune.

A row names tests as `file::function`; a row that cannot apply says why."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

ROWS: dict[int, tuple[str, ...] | str] = {
    1: (
        "algorithms/test_advantages.py::test_row_01_fewer_than_two_rollouts_are_refused_with_the_reason",
        "training/test_rows.py::test_every_rollout_is_computed_once_and_every_rank_has_as_many_batches",
        "training/test_update.py::test_rows_11_and_25_the_micro_batches_change_no_gradient",
    ),
    2: ("test_cli.py::test_bad_input_ends_with_one_message_and_nothing_written",),
    3: (
        "training/test_collect.py::test_row_3_the_same_text_with_different_pictures_stays_two_groups",
        "data/test_load.py::test_the_same_text_with_another_picture_is_another_question",
    ),
    4: (
        "algorithms/test_advantages.py::test_row_04_shuffling_the_rollouts_changes_no_bit",
        "algorithms/test_loss.py::test_row_04_the_order_of_the_rollouts_changes_nothing",
    ),
    5: ("training/test_collect.py::test_row_5_each_reward_sees_its_own_sample",),
    6: (
        "training/test_loop.py::test_row_6_degenerate_groups_warn_and_skip_the_update_only_without_kl",
        "algorithms/test_loss.py::test_row_06_without_advantages_only_the_kl_term_moves_the_policy",
    ),
    7: ("training/test_loop.py::test_rows_7_and_8_dynamic_sampling_goes_by_accuracy_and_never_fails",),
    8: (
        "training/test_loop.py::test_rows_7_and_8_dynamic_sampling_goes_by_accuracy_and_never_fails",
        "algorithms/test_advantages.py::test_row_08_equal_accuracy_with_unequal_format_is_degenerate",
    ),
    9: ("training/test_rows.py::test_row_9_a_rank_without_rollouts_still_has_a_micro_batch",),
    10: ("sampling/test_dynamic.py::test_expected_dead_groups",),
    11: (
        "algorithms/test_loss.py::test_row_11_micro_batches_change_neither_loss_nor_gradient",
        "training/test_update.py::test_rows_11_and_25_the_micro_batches_change_no_gradient",
    ),
    12: (
        "algorithms/test_loss.py::test_row_12_nor_do_they_over_several_updates_of_one_batch",
        "training/test_update.py::test_row_12_nor_over_several_updates",
    ),
    13: ("algorithms/test_loss.py::test_row_13_masking_rollouts_equals_deleting_them",),
    14: (
        "algorithms/test_loss.py::test_row_14_values_at_padded_positions_do_not_exist",
        "training/test_policy.py::test_row_14_values_at_padded_positions_do_not_matter",
    ),
    15: (
        "algorithms/test_ratios.py::test_row_15_sequence_ratio_is_the_exponential_of_the_mean",
        "algorithms/test_ratios.py::test_row_15_doubling_a_rollout_leaves_its_sequence_ratio",
        "algorithms/test_loss.py::test_row_15_gspo_with_sequence_gradient_equals_gspo_token",
    ),
    16: (
        "algorithms/test_aggregation.py::test_row_16_token_mean_is_the_mean_over_all_tokens",
        "algorithms/test_aggregation.py::test_row_16_seq_mean_is_the_mean_over_rollouts_of_their_token_means",
    ),
    17: (
        "algorithms/test_kl.py::test_row_17_k3_and_its_gradient_are_finite_for_any_gap",
        "algorithms/test_loss.py::test_row_17_loss_and_gradient_are_finite_for_any_gap",
    ),
    18: (
        "training/test_update.py::test_row_18_a_non_finite_loss_skips_the_step_and_names_the_rollouts",
        "training/test_faults.py::test_row_18_three_in_a_row_stop_the_run_with_exit_code_5",
    ),
    19: (
        "rollout/test_engines.py::test_logprobs_are_those_of_a_plain_forward_pass_after_load_and_after_an_update",
        "algorithms/test_importance.py::test_row_19_one_temperature_on_both_sides_gives_ratios_of_one",
    ),
    20: (
        "rollout/test_engines.py::test_top_k_and_top_p_leave_only_the_likeliest_tokens_and_renormalise",
        "config/test_load.py::test_fields_that_do_not_go_together_are_refused",
    ),
    21: (
        "rollout/test_engines.py::test_logprobs_are_those_of_a_plain_forward_pass_after_load_and_after_an_update",
        "training/test_loop.py::test_row_21_learning_rate_zero_keeps_the_gap_flat",
    ),
    24: (
        "training/test_collect.py::test_row_24_an_overlong_prompt_is_dropped_and_counted_or_an_error",
        "models/test_processing.py::test_a_long_prompt_is_refused_and_the_hint_cures_it",
    ),
    25: (
        "training/test_policy.py::test_rows_25_and_28_packed_logprobs_equal_the_models_own",
        "training/test_update.py::test_rows_11_and_25_the_micro_batches_change_no_gradient",
    ),
    26: ("rollout/test_engines.py::test_vision_tokens_are_never_drawn_even_by_a_model_that_wants_nothing_else",),
    27: (
        "models/test_processing.py::test_pictures_for_a_model_of_text_name_the_sample",
        "models/test_processing.py::test_a_template_without_pictures_is_refused",
        "models/test_processing.py::test_more_marks_than_pictures_are_refused",
    ),
    28: ("training/test_policy.py::test_rows_25_and_28_packed_logprobs_equal_the_models_own",),
    29: (
        "training/test_collect.py::test_row_29_a_bad_picture_is_set_aside_and_counted",
        "models/test_images.py::test_a_tiny_picture_is_scaled_up_to_a_patch_at_least",
        "models/test_images.py::test_a_useless_size_is_refused_with_its_numbers",
    ),
    30: ("commands/test_memory.py::test_row_30_memory_does_not_grow_over_steps_with_pictures",),
    31: (
        "models/test_processing.py::test_rollouts_share_one_decoded_picture",
        "models/test_processing.py::test_decoded_pictures_are_bounded",
        "data/test_load.py::test_loading_decodes_no_picture_and_writes_nothing_beside_the_data",
    ),
    41: ("commands/test_train.py::test_row_41_three_steps_a_kill_and_three_more_equal_six",),
    42: ("commands/test_train.py::test_row_42_evaluation_touches_no_training_randomness",),
    43: ("training/test_validate.py::test_row_43_evaluation_has_its_own_number_of_responses",),
    44: (
        "test_cli.py::test_row_44_the_first_line_comes_before_anything_heavy",
        "reporting/test_progress.py::test_a_long_phase_gives_signs_of_life",
    ),
    45: ("training/test_watchdog.py::test_row_45_a_phase_over_its_limit_leaves_the_stacks_and_exit_code_5",),
    46: "a run on the longest samples first belongs to the memory plan, which is not built yet",
    47: ("rollout/test_engines.py::test_a_response_ends_at_any_end_token_and_holds_it_even_where_it_is_the_padding",),
    48: (
        "training/test_policy.py::test_row_48_a_pad_token_inside_a_response_is_a_token",
        "rollout/test_engines.py::test_a_response_ends_at_any_end_token_and_holds_it_even_where_it_is_the_padding",
    ),
    49: (
        "commands/test_train.py::test_row_49_the_same_seed_gives_the_same_bits",
        "commands/test_train.py::test_the_document_and_the_run_directory_are_complete",
    ),
    50: ("training/test_loop.py::test_row_50_metrics_carry_every_counter",),
}


def functions(file: Path) -> set[str]:
    """The test functions of a file."""
    tree = ast.parse(file.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", [*range(1, 22), *range(24, 32), *range(41, 51)])
def test_every_row_names_its_tests_or_why_it_cannot_apply(row: int):
    named = ROWS[row]
    if isinstance(named, str):
        assert len(named.split()) > 5
        return
    assert named
    for reference in named:
        file, _, function = reference.partition("::")
        assert function in functions(TESTS / file), reference
