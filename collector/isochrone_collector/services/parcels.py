"""Pushes as they came over the wire, as parcels."""

from functools import partial

from isochrone_collector.admission import Parcel
from isochrone_collector.services import sheets
from isochrone_wire import codec
from isochrone_wire.codec import CodecError
from isochrone_wire.model import Sample, Vantage, Vitals
from isochrone_wire.v1 import fleet_pb2, sample_pb2


def parcel_of(request: fleet_pb2.PushRequest, received_at: int) -> Parcel:
    """A push, not yet looked at, that came at `received_at` of the collector's clock."""
    return Parcel(
        vantage=codec.decode(Vantage, request.vantage),
        epoch=request.epoch,
        seq=request.seq,
        samples=len(request.samples),
        content=request.SerializeToString,
        sheet=partial(sheets.read, request),
        read=lambda place: _sample(request.samples[place]),
        vitals=codec.decode(Vitals, request.vitals),
        received_at=received_at,
    )


def _sample(message: sample_pb2.Sample) -> Sample | str:
    """The sample; or, when it says something this version cannot understand, why."""
    try:
        return codec.decode(Sample, message)
    except CodecError as error:
        return str(error)
