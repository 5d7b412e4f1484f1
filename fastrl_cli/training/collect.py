"""From the question stream to scored groups: drawing, generating, grading. Each rank does its share; afterwards every
rank has every group, so that advantages and selection are computed alike everywhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from fastrl_cli.data.problems import BadImageError, BadQuestionError, OverlongPromptError, UnusableSampleError
from fastrl_cli.data.sample import Draw, Sample
from fastrl_cli.errors import DataError
from fastrl_cli.rewards import RewardFunction, score, shuffle_rewards
from fastrl_cli.rollout.rollout import Engine, Generation, Rollout, Sampling
from fastrl_cli.sampling import QuestionStream, group_seed
from fastrl_cli.training.faults import Faults
from fastrl_cli.training.groups import DrawnQuestion, RolloutGroup, all_rollouts
from fastrl_cli.training.ranks import gather_rollouts, share

if TYPE_CHECKING:
    from accelerate import Accelerator

    from fastrl_cli.models.processing import Processing

FAULT_OF: dict[type[UnusableSampleError], str] = {
    OverlongPromptError: "overlong_prompts",
    BadImageError: "bad_images",
    BadQuestionError: "bad_questions",
}

QUESTIONS_TRIED = 64


class Collector:
    """Makes the scored groups of a step."""

    def __init__(
        self,
        questions: Sequence[Sample],
        stream: QuestionStream,
        processing: Processing,
        engine: Engine,
        sampling: Sampling,
        reward: RewardFunction,
        accelerator: Accelerator,
        faults: Faults,
        *,
        seed: int,
        overlong_is_error: bool,
    ) -> None:
        self.questions = questions
        self.stream = stream
        self.processing = processing
        self.engine = engine
        self.sampling = sampling
        self.reward = reward
        self.accelerator = accelerator
        self.faults = faults
        self.seed = seed
        self.overlong_is_error = overlong_is_error
        self.grading = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fastrl-grading")

    def check_questions(self) -> None:
        """Before anything is written: `check_usable`, and every prompt where a long one is an error. Raises
        DataError."""
        for sample in self.questions if self.overlong_is_error else ():
            try:
                self.processing.prompt(sample)
            except OverlongPromptError:
                raise
            except UnusableSampleError:
                continue
        check_usable(self.questions, self.processing)

    def draw(self, count: int) -> list[DrawnQuestion]:
        """The next `count` questions that give a prompt. One that does not is counted, and the next takes its place.
        Raises DataError where whole passes over the questions give none."""
        drawn: list[DrawnQuestion] = []
        failures = 0
        while len(drawn) < count:
            index, number = self.stream.take(1)[0]
            sample = self.questions[index]
            try:
                drawn.append(DrawnQuestion(Draw(sample.id, number), self.processing.prompt(sample)))
                failures = 0
            except UnusableSampleError as error:
                if isinstance(error, OverlongPromptError) and self.overlong_is_error:
                    raise
                self.faults.note(FAULT_OF[type(error)], f"question set aside: {error}", on_every_rank=True)
                failures += 1
                if failures >= 2 * len(self.questions):
                    raise DataError(
                        f"none of the {len(self.questions)} questions can be used; the last: {error}"
                    ) from None
        return drawn

    def generate(self, drawn: Sequence[DrawnQuestion], n: int, step: int) -> list[RolloutGroup]:
        """This rank's share of the questions with `n` rollouts each, which are graded while those of other questions
        are still generated. A question whose picture cannot be decoded has none."""
        mine = share(drawn, self.accelerator.process_index, self.accelerator.num_processes)
        usable = [question for question in mine if self.decodes(question)]
        seeds = [group_seed(self.seed, step, question.draw) for question in usable]
        made: dict[Draw, RolloutGroup] = {}

        def done(place: int, generations: Sequence[Generation]) -> None:
            group = self.group(usable[place], generations, seeds[place])
            group.grading = self.grading.submit(score, group.rollouts, self.reward)
            made[group.question.draw] = group

        self.engine.generate([question.prompt for question in usable], n, self.sampling, seeds, done)
        return [made.get(question.draw, RolloutGroup(question)) for question in mine]

    def decodes(self, question: DrawnQuestion) -> bool:
        """False, and counted, where a picture's data turns out damaged."""
        try:
            self.processing.images(question.prompt.sample)
        except BadImageError as error:
            self.faults.note("bad_images", f"question set aside: {error}")
            return False
        return True

    def group(self, question: DrawnQuestion, generations: Sequence[Generation], seed: int) -> RolloutGroup:
        """Rollouts made of one question's generations."""
        rollouts = [
            Rollout(
                sample=question.prompt.sample,
                draw=question.draw,
                index=index,
                generation=generation,
                text=self.processing.decode(generation.token_ids),
                seed=seed + index,
            )
            for index, generation in enumerate(generations)
        ]
        return RolloutGroup(question, rollouts)

    def grade(self, groups: Sequence[RolloutGroup]) -> None:
        """Give each rollout its reward. Rollouts whose reward failed leave their group, counted."""
        for group in groups:
            if group.grading is None:
                continue
            scored = group.grading.result()
            for rollout, reward in zip(group.rollouts, scored.rewards, strict=True):
                rollout.reward = reward
            group.rollouts = [rollout for rollout in group.rollouts if rollout.reward is not None]
            for failure in scored.failures:
                self.faults.note("reward_failures", f"set aside: {failure}")

    def exchange(self, drawn: Sequence[DrawnQuestion], groups: Sequence[RolloutGroup]) -> list[RolloutGroup]:
        """The graded groups of all ranks in the order of the draws. A group that has no two rollouts left is dropped:
        an advantage compares rollouts."""
        samples = {question.draw.question_id: question.prompt.sample for question in drawn}
        by_draw: dict[Draw, list[Rollout]] = defaultdict(list)
        for rollout in gather_rollouts(all_rollouts(groups), samples, self.accelerator):
            by_draw[rollout.draw].append(rollout)
        ordered = [RolloutGroup(question, by_draw[question.draw]) for question in drawn]
        return [group for group in ordered if len(group.rollouts) >= 2]


def check_usable(questions: Sequence[Sample], processing: Processing) -> None:
    """Raise DataError where a question has a picture and the model takes none, or where none of the first questions
    gives a prompt and decoded pictures."""
    if not processing.is_multimodal:
        for sample in questions:
            processing.check_pictures(sample)
    trouble: UnusableSampleError | None = None
    for sample in questions[:QUESTIONS_TRIED]:
        try:
            processing.prompt(sample)
            processing.images(sample)
            return
        except UnusableSampleError as error:
            trouble = error
    tried = min(len(questions), QUESTIONS_TRIED)
    raise DataError(f"none of the first {tried} questions of {questions[0].source} can be used; the last: {trouble}")


def permute_rewards(groups: Sequence[RolloutGroup], seed: int) -> None:
    """The control: permute the rewards among all rollouts of the step, so that they say nothing."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards = [rollout.reward for rollout in rollouts]
    for rollout, reward in zip(rollouts, shuffle_rewards(rewards, seed), strict=True):
        rollout.reward = reward
