"""Type names of forms in model folders.

A folder names the type of each form. Loading creates only classes of this table, or forms that the running program has
defined. A type keeps its name even if its class moves."""

from __future__ import annotations

import inspect
from dataclasses import is_dataclass
from typing import Any

from xmtc.core.registry import find_subclasses, get_class_address, import_class
from xmtc.errors import XmtcError, as_missing_extra
from xmtc.storage.form import Form

FORM_TYPES = {
    # texts
    "tokenizer": "xmtc.text.tokenizer:Tokenizer",
    "string-index": "xmtc.text.string_index:StringIndex",
    "tfidf-view": "xmtc.features.tfidf:FittedTfidf",
    "analyzed-tfidf-view": "xmtc.features.tfidf:AnalyzedTfidf",
    "joined-tfidf-view": "xmtc.features.tfidf:JoinedTfidf",
    "word-view": "xmtc.features.words:FittedWords",
    "stem-view": "xmtc.features.words:FittedStems",
    "subword-view": "xmtc.features.subwords:FittedSubwords",
    "sentence-view": "xmtc.features.dense:FittedDense",
    "tfidf-sentence-view": "xmtc.features.tfidf:TfidfBesideVectors",
    "label-name-view": "xmtc.features.names:FittedNames",
    "column-view": "xmtc.features.columns:FittedColumns",
    "occurring-column-view": "xmtc.features.columns:OccurringColumns",
    # training data
    "training-store": "xmtc.core.training_store:TrainingStore",
    "stored-bag": "xmtc.core.training_store:StoredBag",
    "stored-tokens": "xmtc.core.training_store:StoredTokens",
    "stored-names": "xmtc.core.training_store:StoredNames",
    # labels
    "label-concepts": "xmtc.vocabulary.label_concepts:LabelConcepts",
    "concept-vocabulary": "xmtc.vocabulary.vocabulary:Vocabulary",
    "concept-links": "xmtc.vocabulary.vocabulary:ConceptLinks",
    "concept-aliases": "xmtc.vocabulary.vocabulary:ConceptAliases",
    "concept-names": "xmtc.vocabulary.vocabulary:ConceptNames",
    "decision": "xmtc.scores.thresholds:LabelSelector",
    "drift-reference": "xmtc.scores.drift:DriftReference",
    "quality-gate": "xmtc.scores.quality:QualityGate",
    # models
    "linear-tree": "xmtc.linear.tree:LinearTree",
    "linear-tree-model": "xmtc.linear.model:TreeModel",
    "instance-forest": "xmtc.methods.instance_tree.forest:Forest",
    "instance-forest-model": "xmtc.methods.instance_tree.model:ForestModel",
    "reranked-instance-forest-model": "xmtc.methods.instance_tree.model:RerankedForestModel",
    "centroid-forest": "xmtc.methods.instance_tree.craftml:CentroidForest",
    "centroid-forest-model": "xmtc.methods.instance_tree.craftml:CentroidForestModel",
    "neighbour-learner": "xmtc.methods.embedding.neighbour_model:Learner",
    "neighbour-model": "xmtc.methods.embedding.neighbour_model:NeighbourModel",
    "fasttext-model": "xmtc.methods.embedding.fasttext_model:FastTextModel",
    "extremetext-model": "xmtc.methods.embedding.extremetext:ExtremeTextModel",
    "name-automaton": "xmtc.methods.lexical.automaton:AhoCorasickAutomaton",
    "lexical-evidence": "xmtc.methods.lexical.match_classifier:MatchClassifier",
    "lexical-model": "xmtc.methods.lexical.model:LexicalModel",
    "match-index": "xmtc.methods.matcher.candidates:MatchIndex",
    "matcher-model": "xmtc.methods.matcher.model:MatcherModel",
    "fine-tuned-matcher-model": "xmtc.methods.matcher.fine_tuned_model:FineTunedMatcherModel",
    "slice-model": "xmtc.methods.one_vs_all.slice_model:SliceModel",
    "sentence-encoder": "xmtc.features.encoders.sentence_vectors:StoredEncoder",
    "xr-transformer-model": "xmtc.methods.transformer.xr_model:XRTransformerModel",
    "calibrated-model": "xmtc.methods.ensemble.calibrated_model:CalibratedModel",
    "adapted-model": "xmtc.methods.ensemble.model:RemappedModel",
    "merged-label-model": "xmtc.methods.ensemble.merged_labels:MergedLabelModel",
    "combined-model": "xmtc.methods.ensemble.model:CombinedModel",
    "stacked-model": "xmtc.methods.ensemble.stacked_model:StackedModel",
    "boosted-trees": "xmtc.methods.ensemble.boosted_trees:BoostedTrees",
    # networks
    "trained-network": "xmtc.nn.network:TrainedNetwork",
    "network-weights": "xmtc.nn.network:Weights",
    "recurrent-design": "xmtc.methods.attention.model:RecurrentDesign",
    "attention-level": "xmtc.methods.attention.model:TreeLevel",
    "attention-model": "xmtc.methods.attention.model:AttentionModel",
    "filter-design": "xmtc.methods.convolution.xml_cnn:XMLCNNDesign",
    "bag-design": "xmtc.methods.convolution.bow_cnn:BowCNNDesign",
    "convolution-model": "xmtc.methods.convolution.model:ConvolutionalModel",
    "autoencoder-design": "xmtc.methods.autoencoder.model:AutoencoderDesign",
    "autoencoder-model": "xmtc.methods.autoencoder.model:AutoencoderModel",
    "transformer-design": "xmtc.methods.transformer.model:TransformerDesign",
    "transformer-model": "xmtc.methods.transformer.model:TransformerModel",
}
# Type names in model folders of format 3 and vocabulary folders of format 1: the former addresses of the classes.
OLD_NAMES = {
    "xmtc.decisions.decision:Decision": "decision",
    "xmtc.features.columns:FittedColumns": "column-view",
    "xmtc.features.columns:OccurringColumns": "occurring-column-view",
    "xmtc.features.names:FittedNames": "label-name-view",
    "xmtc.features.subwords:FittedSubwords": "subword-view",
    "xmtc.features.tfidf:AnalyzedTfidf": "analyzed-tfidf-view",
    "xmtc.features.tfidf:FittedTfidf": "tfidf-view",
    "xmtc.features.tfidf:SideBySide": "joined-tfidf-view",
    "xmtc.features.words:FittedStems": "stem-view",
    "xmtc.features.words:FittedWords": "word-view",
    "xmtc.linear.model:TreeModel": "linear-tree-model",
    "xmtc.linear.tree:Tree": "linear-tree",
    "xmtc.methods.attention.model:AttentionModel": "attention-model",
    "xmtc.methods.attention.model:Level": "attention-level",
    "xmtc.methods.attention.model:RecurrentDesign": "recurrent-design",
    "xmtc.methods.autoencoder.model:AutoencoderDesign": "autoencoder-design",
    "xmtc.methods.autoencoder.model:AutoencoderModel": "autoencoder-model",
    "xmtc.methods.convolution.bow_cnn:BagDesign": "bag-design",
    "xmtc.methods.convolution.family:RegionModel": "convolution-model",
    "xmtc.methods.convolution.xml_cnn:FilterDesign": "filter-design",
    "xmtc.methods.embedding.fasttext_model:FastTextModel": "fasttext-model",
    "xmtc.methods.embedding.model:Learner": "neighbour-learner",
    "xmtc.methods.embedding.model:NeighbourModel": "neighbour-model",
    "xmtc.methods.ensemble.calibrated:Calibrated": "calibrated-model",
    "xmtc.methods.ensemble.model:Adapted": "adapted-model",
    "xmtc.methods.ensemble.model:Combination": "combined-model",
    "xmtc.methods.instance_tree.forest:Forest": "instance-forest",
    "xmtc.methods.instance_tree.model:ForestModel": "instance-forest-model",
    "xmtc.methods.instance_tree.model:RerankedForestModel": "reranked-instance-forest-model",
    "xmtc.methods.lexical.automaton:Automaton": "name-automaton",
    "xmtc.methods.lexical.evidence:Evidence": "lexical-evidence",
    "xmtc.methods.lexical.model:LexicalModel": "lexical-model",
    "xmtc.methods.transformer.model:TransformerDesign": "transformer-design",
    "xmtc.methods.transformer.model:TransformerModel": "transformer-model",
    "xmtc.nn.network:TrainedNetwork": "trained-network",
    "xmtc.nn.weights:Weights": "network-weights",
    "xmtc.text.tokenizer:Tokenizer": "tokenizer",
    "xmtc.text.vocabulary:Vocabulary": "string-index",
    "xmtc.vocab.labels:LabelConcepts": "label-concepts",
    "xmtc.vocab.vocabulary:Links": "concept-links",
    "xmtc.vocab.vocabulary:Names": "concept-names",
    "xmtc.vocab.vocabulary:Vocabulary": "concept-vocabulary",
}
TYPE_NAMES = {address: name for name, address in FORM_TYPES.items()}


def get_form_name(kind: type) -> str:
    """Return the type name of a class, which is its address for classes of other packages."""
    address = get_class_address(kind)
    return TYPE_NAMES.get(address, address)


def get_form_class(name: Any) -> Any:
    """Return the class of a type name from a folder.

    Only modules of the table are imported. A form of another package must be defined already, by importing its method.

    Raises
    ------
    KeyError, TypeError
        If there is no such form.
    XmtcError
        If it needs an optional dependency that is not installed.
    """
    if not isinstance(name, str):
        raise TypeError("the type of a form is not text")
    name = OLD_NAMES.get(name, name)
    if name in FORM_TYPES:
        try:
            return import_class(FORM_TYPES[name])
        except ImportError as error:
            missing = as_missing_extra("This model", error)
            raise missing if isinstance(missing, XmtcError) else KeyError(name) from None
    kind = find_subclasses(Form)[name]
    if not is_dataclass(kind) or inspect.isabstract(kind):
        raise TypeError(f"{name} is not a form")
    return kind
