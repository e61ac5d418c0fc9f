"""Protobuf messages that are built without protoc: nested messages, a map, and a file that imports others."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

F = descriptor_pb2.FieldDescriptorProto


@cache
def shop() -> dict[str, Any]:
    """Return the message classes Price, Order, Order.Item, Order.Item.Note, Order.After and Last by name.

    shop/price.proto defines Price. shop/order.proto imports it, and defines the other messages.
    """
    price = descriptor_pb2.FileDescriptorProto(name="shop/price.proto", package="shop", syntax="proto3")
    message = price.message_type.add(name="Price")
    message.field.add(name="cents", number=1, type=F.TYPE_INT64, label=1)

    order = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["shop/price.proto", "google/protobuf/timestamp.proto"])
    message = order.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=F.TYPE_STRING, label=1)
    message.field.add(name="price", number=2, type=F.TYPE_MESSAGE, label=1, type_name=".shop.Price")
    message.field.add(name="at", number=3, type=F.TYPE_MESSAGE, label=1)
    message.field[-1].type_name = ".google.protobuf.Timestamp"
    item = message.nested_type.add(name="Item")
    item.field.add(name="name", number=1, type=F.TYPE_STRING, label=1)
    note = item.nested_type.add(name="Note")
    note.field.add(name="text", number=1, type=F.TYPE_STRING, label=1)
    entry = message.nested_type.add(name="LabelsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=F.TYPE_STRING, label=1)
    message.field.add(name="labels", number=4, type=F.TYPE_MESSAGE, label=3)
    message.field[-1].type_name = ".shop.Order.LabelsEntry"
    # `After` follows LabelsEntry, the nested message that protobuf generates for the entries of a map. Tests
    # check the message index of `After`.
    after = message.nested_type.add(name="After")
    after.field.add(name="text", number=1, type=F.TYPE_STRING, label=1)
    order.message_type.add(name="Last").field.add(name="n", number=1, type=F.TYPE_INT32, label=1)

    from google.protobuf import timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(price)
    pool.Add(order)
    names = ("Price", "Order", "Order.Item", "Order.Item.Note", "Order.After", "Last")
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in names
    }
