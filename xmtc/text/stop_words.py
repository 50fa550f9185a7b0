"""Stop words of some languages, for filtering and for language detection.

The lists were written for xmtc and are short: frequent articles, pronouns, prepositions, conjunctions and forms of "to
be". Filtering of English uses scikit-learn's longer list."""

from __future__ import annotations

import functools
from pathlib import Path

from xmtc.errors import XmtcError

STOP_WORD_LISTS = {
    "danish": "og i at det en den til er som på de med han af for ikke der var mig sig men et har om vi min havde "
    "ham hun nu over da fra du ud sin dem os op man hans hvor eller hvad skal selv her alle vil blev "
    "kunne ind når være dog noget ved jeg efter også under kan",
    "dutch": "de en van ik te dat die in een hij het niet zijn is was op aan met als voor had er maar om hem dan "
    "zou of wat mijn men dit zo door over ze zich bij ook tot je mij uit der daar haar naar heb hoe heeft "
    "hebben deze want nog zal me zij nu geen omdat iets worden toch al waren veel meer doen moet ben "
    "zonder kan hun wordt",
    "english": "the of and to in is that it for was on with as by are this be from at or which an have not were but "
    "has their they its can been will would there when what who more if no out so his her him she he we "
    "you your our about these those them than then also into only other some such may how where",
    "finnish": "ja on ei että se oli hän mutta ovat kun niin myös kuin sen tai jos joka mukaan sekä ole voi olla "
    "jotka hänen vain joissa jossa siitä niiden näiden tämä tämän nämä ne he me te minä sinä eri kanssa "
    "jonka mikä vaan kaikki olivat ollut jo nyt kuten eli muun muassa esimerkiksi sitä siinä jolla josta "
    "joita",
    "french": "de la le et les des en un une du est que pour dans qui par sur au plus ne pas ce il sont avec se aux "
    "son sa ses ou été elle cette ces leur leurs mais nous vous je tu ils elles on à être avoir fait "
    "comme même sans sous entre dont où très tout tous si lui y",
    "german": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden "
    "aus er hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur "
    "oder aber vor zur bis mehr durch man sein wurde wenn können ich wir ihr unter dieser diese dieses "
    "eines",
    "hungarian": "a az és hogy nem is egy ez azt meg csak de volt már el ha még mint van vagy kell ki sem ezt lehet be "
    "volna amely azonban minden majd pedig ezek akkor arra ami amit aki által után között előtt alatt "
    "alapján illetve való számára során szerint vele őket ők én te mi ti itt ott most úgy így",
    "italian": "di e il la che in un per è non una sono da del si con le dei della al come nel più i alla ha lo su "
    "gli anche ma se delle o dal questo nella ed ai dalla questa loro degli sua suo sul essere stato "
    "stata tra fra io tu lui lei noi voi essi dove quando cui perché senza",
    "norwegian": "og i det er på til en av å for at med som ikke har de den et om fra var han men vi kan seg skal så "
    "jeg eller etter ble hun ved også være da opp under vil når mot hva over blir noe du sin selv dette "
    "disse denne hvor alle mer inn ut kunne skulle noen hadde dem oss bare",
    "portuguese": "de a o que e do da em um para é com não uma os no se na por mais as dos como mas foi ao ele das tem "
    "à seu sua ou ser quando muito há nos já está eu também só pelo pela até isso ela entre era depois "
    "sem mesmo aos ter seus quem nas me esse eles estão você essa num nem suas",
    "romanian": "de și în a la cu pe nu este un o care din că mai se pentru sau au fost prin al ce ale cel dar după "
    "sunt lui fi ca am iar ei ea el lor între despre foarte acest această acestea aceste până când unei "
    "unor unui cum dacă noi voi fără sub asupra atât poate era",
    "russian": "и в не на что он с как а то это по но из к у за от же о для она они мы вы был была были быть его её "
    "их при или также бы до так который которая которые если уже все со ли только еще когда где этот эта "
    "эти том тем чем нет под об после через между можно",
    "spanish": "de la que el en y a los se del las un por con no una su para es al lo como más o pero sus le ha me "
    "si sin sobre este ya entre cuando todo esta ser son dos también fue había era muy hasta desde está "
    "mi porque qué sólo han yo hay vez puede todos así nos ni parte tiene él uno donde bien",
    "swedish": "och i att det som en på är av för med den till inte har de ett om var han från men vi kan så sig jag "
    "eller efter när ska man också vid skulle hade sin blev där vad hon dem nu över mot då under alla ut "
    "mycket in blir utan hur denna detta dessa bara sedan upp varit här någon några vara samt",
    "turkish": "ve bir bu da de için ile olarak çok daha olan gibi en ne kadar ama o sonra ya her mi ki değil var "
    "ise veya olduğu tarafından göre ben sen biz siz onlar şey hem diye nasıl bunu onun bütün hiç ancak "
    "çünkü olduğunu eden yani bazı kendi yok içinde arasında",
}  # fmt: skip


def language_names() -> tuple[str, ...]:
    return tuple(STOP_WORD_LISTS)


@functools.cache
def common_words(language: str) -> frozenset[str]:
    return frozenset(STOP_WORD_LISTS[language].split())


def load_stop_words(setting: str) -> tuple[str, ...]:
    """Return the stop words of a parameter value: none, those of a language or a file, or words joined by commas."""
    if not setting:
        return ()
    if setting == "english":
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        return tuple(sorted(ENGLISH_STOP_WORDS))
    if setting in STOP_WORD_LISTS:
        return tuple(sorted(common_words(setting)))
    if "," in setting and not is_file(setting):
        return tuple(word for part in setting.split(",") if (word := part.strip()))
    try:
        return tuple(Path(setting).read_text(encoding="utf-8").split())
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or an invalid path
        reason = getattr(error, "strerror", None) or error
        raise XmtcError(
            f"stop_words={setting!r:.200} is neither one of {', '.join(STOP_WORD_LISTS)}, nor words joined by commas, "
            f"nor a readable UTF-8 file of words: {reason}."
        ) from None


def is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # too long, or with a null character
        return False
